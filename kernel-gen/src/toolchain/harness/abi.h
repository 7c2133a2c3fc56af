// What the program that runs kernels knows of one: its buffers, and the programs that run on them one after the other.
// All but the last pack parameters; the last is the kernel.

#include <stddef.h>
#include <stdint.h>

struct kg_buffer {
  const char *name;
  size_t bytes;
  int given;    // its contents come from the input file
  int wanted;   // its contents go to the output file
  int constant; // the kernel must leave it alone
};

struct kg_phase {
  int64_t extent;
  int parallel;
};

struct kg_program {
  int phase_count;
  const struct kg_phase *phases;
  int64_t workspace_bytes, worker_bytes;
};

struct kg_kernel {
  int buffer_count;
  const struct kg_buffer *buffers;
  int program_count;
  const struct kg_program *programs;
  void (*call)(int program, int phase, void **p, unsigned char *ws, int64_t worker, int64_t begin, int64_t end);
};
