#pragma once
#define ROWS 6
#define COLUMNS 50
#define BLOCKS 4
#define PART 12800
