// Runs kernels on buffers of exactly their size, so that AddressSanitizer sees an access one byte beyond.
//
// usage: PROGRAM FOLDER FIRST LAST SHORT
//
// Runs the cases FIRST to LAST - 1. Case I reads `I.in` in the folder, which holds the buffers that are given, and writes `I.0` and
// `I.1`: the buffers that are wanted, of two runs. In the second, buffers begin an element further, workers come in the opposite
// order, and memory holds another poison. With SHORT, the last buffer lacks its last element, which a sanitizer must see.

enum { WORKERS = 3 };

static void die(const char *what) {
  fprintf(stderr, "driver: %s\n", what);
  _exit(2);
}

// Memory of exactly these bytes, `skip` bytes into a block that ends with them.
static unsigned char *memory(size_t bytes, size_t skip, int poison, void **block) {
  *block = 0;
  if (posix_memalign(block, 64, bytes + skip)) die("memory");
  memset(*block, poison, bytes + skip);
  return (unsigned char *)*block + skip;
}

static void run(const struct program *program, void **p, int64_t workers, int pass) {
  void *block;
  unsigned char *ws = memory(program->shared + workers * program->worker, 0, pass ? 0x7f : 0xff, &block);
  for (int i = 0; i < program->phases; i++)
    for (int64_t n = 0; n < workers; n++) {
      const struct phase *phase = &program->phase[i];
      int64_t w = pass ? workers - 1 - n : n;
      int64_t begin = phase->parallel ? phase->extent * w / workers : 0;
      int64_t end = phase->parallel ? phase->extent * (w + 1) / workers : w ? 0 : phase->extent;
      if (begin < end) phase->call(p, ws, w, begin, end);
    }
  free(block);
}

static FILE *open_file(const char *folder, int number, const char *kind, const char *mode) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%d.%s", folder, number, kind);
  FILE *file = fopen(path, mode);
  if (!file) die(path);
  return file;
}

static void run_case(const char *folder, int number, int pass, int cut) {
  const struct test *test = &tests[number];
  void *p[MAX_BUFFERS], *blocks[MAX_BUFFERS];
  FILE *in = open_file(folder, number, "in", "rb");
  for (int i = 0; i < test->buffers; i++) {
    const struct buffer *b = &test->buffer[i];
    size_t bytes = b->bytes - (cut && b->wanted ? b->element : 0);
    p[i] = memory(bytes, pass ? b->element : 0, pass ? 0x7f : 0xff, &blocks[i]);
    if (b->given && fread(p[i], 1, bytes, in) != bytes) die("input");
  }
  fclose(in);
  for (int i = 0; i < test->programs; i++) run(&test->program[i], p, WORKERS, pass);
  FILE *out = open_file(folder, number, pass ? "1" : "0", "wb");
  for (int i = 0; i < test->buffers; i++) {
    const struct buffer *b = &test->buffer[i];
    if (b->wanted && !cut && fwrite(p[i], 1, b->bytes, out) != b->bytes) die("output");
    free(blocks[i]);
  }
  if (fclose(out)) die("output");
}

int main(int argc, char **argv) {
  if (argc != 5) die("usage");
  for (int number = atoi(argv[2]); number < atoi(argv[3]); number++) {
    fprintf(stderr, "driver: case %d\n", number);
    for (int pass = 0; pass < 2; pass++) run_case(argv[1], number, pass, atoi(argv[4]));
  }
  return 0;
}
