// Runs the functions of one kernel: checked (guard pages, poison, canaries) or timed.
//
// usage: harness KERNEL INPUT MEMORY
//
// KERNEL is a shared object with a `kg_kernel`; INPUT holds the buffers that are given, one after the other; MEMORY is how
// many bytes the process may map, 0 for any number. Then it does what it is told on standard input, a line each:
//
//   check WORKERS OUTPUT   runs the kernel twice and writes the buffers that are wanted
//   time THREADS MIN_NS KEPT CALLS   makes ready for samples of at least MIN_NS nanoseconds and CALLS calls; prints `ready NS`,
//                          the time of a call.
//                          A call finds the buffers of the bit set KEPT, and the workspace, where the one before left
//                          them, and the others in no cache
//   sample COUNT           takes samples; prints `sample NS PEAK` for each
//
// The last line of an answer is the verdict: `ok`, or a word with details, after which the process ends.

static size_t page_bytes;
static const struct kg_kernel *kernel;
static const char *input_path;

// A mapping with an inaccessible page on either side, and a buffer in it.
struct region {
  unsigned char *map, *body, *data;
  size_t map_bytes, body_bytes, bytes;
};

enum { MAX_BUFFERS = 64 };
// The buffers, then the workspace.
static struct region regions[MAX_BUFFERS + 1];
static const char *region_name(int i) { return i < kernel->buffer_count ? kernel->buffers[i].name : "workspace"; }

static void die(const char *what, const char *detail) {
  printf("error %s %s\n", what, detail);
  fflush(stdout);
  _exit(2);
}

// A large page, as the library counts on it.
enum { LARGE_PAGE = 2 << 20 };

// Asks for large pages in memory that nobody has touched yet; those parts of it that are whole large pages.
static void ask_for_large_pages(void *start, size_t bytes) {
#ifdef MADV_HUGEPAGE
  uintptr_t begin = ((uintptr_t)start + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE;
  uintptr_t end = ((uintptr_t)start + bytes) / LARGE_PAGE * LARGE_PAGE;
  if (begin < end) madvise((void *)begin, end - begin, MADV_HUGEPAGE);
#else
  (void)start, (void)bytes;
#endif
}

// Memory that begins as the library's does (runtime/src/arena.rs): workspaces, and what has a megabyte or more, at a large
// page, the rest at a page. At least a page of it is not the buffer's. It is mapped once for all that is done with the kernel:
// fresh memory costs more than what most kernels do with it.
static struct region region_new(size_t bytes, int large) {
  struct region r;
  size_t align = large ? (size_t)LARGE_PAGE : page_bytes;
  r.bytes = bytes;
  r.body_bytes = (bytes + align - 1) / align * align + page_bytes;
  r.map_bytes = r.body_bytes + align + 2 * page_bytes;
  r.map = mmap(0, r.map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (r.map == MAP_FAILED) die("memory", "mmap");
  uintptr_t first = (uintptr_t)r.map + page_bytes;
  r.body = r.map + page_bytes + (align - first % align) % align;
  if (mprotect(r.body, r.body_bytes, PROT_READ | PROT_WRITE)) die("memory", "mprotect");
  if (align == LARGE_PAGE) ask_for_large_pages(r.body, r.body_bytes);
  r.data = r.body;
  return r;
}

// Puts the buffer against an inaccessible page: on its left if `end` is 0, on its right otherwise. What it leaves of the
// memory holds a canary.
static void region_place(struct region *r, int end) {
  r->data = r->body + (end ? r->body_bytes - r->bytes : 0);
  memset(end ? r->body : r->data + r->bytes, 0xA5, r->body_bytes - r->bytes);
}

static long region_canary(const struct region *r) {
  const unsigned char *first = r->body, *last = r->body + r->body_bytes;
  for (const unsigned char *p = first; p < last; p++) {
    if (p == r->data) p += r->bytes;
    if (p < last && *p != 0xA5) return p - r->data;
  }
  return 0;
}

static void on_fault(int signal, siginfo_t *info, void *context) {
  (void)context;
  const unsigned char *at = info->si_addr;
  for (int i = 0; i <= kernel->buffer_count; i++)
    if (regions[i].map && at >= regions[i].map && at < regions[i].map + regions[i].map_bytes) {
      printf("fault %s %ld\n", region_name(i), (long)(at - regions[i].data));
      fflush(stdout);
      _exit(3);
    }
  if (signal == SIGSEGV || signal == SIGBUS)
    printf("stray\n");
  else
    printf("signal %d\n", signal);
  fflush(stdout);
  _exit(3);
}

static void watch_faults(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, 0);
  sigaction(SIGBUS, &action, 0);
  sigaction(SIGFPE, &action, 0);
  sigaction(SIGILL, &action, 0);
}

// The inputs, in memory that cannot be written.
static const unsigned char *input(void) {
  static const unsigned char *data;
  size_t bytes = 0;
  for (int i = 0; i < kernel->buffer_count; i++) bytes += kernel->buffers[i].given ? kernel->buffers[i].bytes : 0;
  if (data || !bytes) return data;
  struct stat status;
  int file = open(input_path, O_RDONLY);
  if (file < 0 || fstat(file, &status) || (size_t)status.st_size < bytes) die("input", input_path);
  void *map = mmap(0, bytes, PROT_READ, MAP_PRIVATE, file, 0);
  if (map == MAP_FAILED) die("memory", "mmap");
  close(file);
  return data = map;
}

static double now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

// Iterations of a phase that worker `w` of `workers` runs.
static void share(const struct kg_phase *phase, int64_t w, int64_t workers, int64_t *begin, int64_t *end) {
  if (phase->parallel) {
    *begin = phase->extent * w / workers;
    *end = phase->extent * (w + 1) / workers;
  } else {
    *begin = 0;
    *end = w == 0 ? phase->extent : 0;
  }
}

// Runs all phases of a program; `reverse` hands out the iterations in the opposite order, which must not matter.
static void run_all(int program, void **p, unsigned char *ws, int64_t workers, int reverse) {
  for (int phase = 0; phase < kernel->programs[program].phase_count; phase++)
    for (int64_t i = 0; i < workers; i++) {
      int64_t w = reverse ? workers - 1 - i : i, begin, end;
      share(&kernel->programs[program].phases[phase], w, workers, &begin, &end);
      if (begin < end) kernel->call(program, phase, p, ws, w, begin, end);
    }
}

static size_t workspace_bytes(int64_t workers) {
  size_t most = 0;
  for (int i = 0; i < kernel->program_count; i++) {
    size_t bytes = (size_t)(kernel->programs[i].workspace_bytes + workers * kernel->programs[i].worker_bytes);
    most = bytes > most ? bytes : most;
  }
  return most;
}

// Where the buffers lie.
static void *placed[MAX_BUFFERS];

// Places the buffers, and fills those that are given: each always in the same memory.
static void place(int end, int poison, int64_t workers) {
  const unsigned char *next = input();
  size_t workspace = workspace_bytes(workers);
  for (int i = 0; i <= kernel->buffer_count; i++) {
    const struct kg_buffer *b = i < kernel->buffer_count ? &kernel->buffers[i] : 0;
    if (!regions[i].map) regions[i] = b ? region_new(b->bytes, b->bytes >= LARGE_PAGE / 2) : region_new(workspace, 1);
    if (!b && regions[i].bytes < workspace) die("workers", "more than before");
    region_place(&regions[i], end);
    if (b && b->given) {
      memcpy(regions[i].data, next, b->bytes);
      next += b->bytes;
    } else {
      memset(regions[i].data, poison, regions[i].bytes);
    }
    if (b) placed[i] = regions[i].data;
  }
}

// A hash that no change of one word leaves as it was. A copy of the weights of a large product would cost more than the product.
static uint64_t hash(const unsigned char *bytes, size_t count) {
  uint64_t sum = 0xcbf29ce484222325, word;
  for (size_t at = 0; at < count; at += sizeof word) {
    word = 0;
    memcpy(&word, bytes + at, count - at < sizeof word ? count - at : sizeof word);
    sum = (sum ^ word) * 0x100000001b3;
  }
  return sum;
}

static int check(const char *output, int64_t workers) {
  unsigned char *kept[MAX_BUFFERS] = {0};
  uint64_t before[MAX_BUFFERS] = {0};
  for (int pass = 0; pass < 2; pass++) {
    place(pass, pass ? 0x7F : 0xFF, workers);
    unsigned char *ws = regions[kernel->buffer_count].data;
    int last = kernel->program_count - 1;
    for (int i = 0; i < last; i++) run_all(i, placed, ws, workers, pass);
    for (int i = 0; i < kernel->buffer_count; i++)
      if (kernel->buffers[i].constant) before[i] = hash(regions[i].data, regions[i].bytes);
    run_all(last, placed, ws, workers, pass);
    for (int i = 0; i <= kernel->buffer_count; i++) {
      long at = region_canary(&regions[i]);
      if (at) {
        printf("canary %s %ld\n", region_name(i), at);
        return 3;
      }
      if (i == kernel->buffer_count) break;
      const struct kg_buffer *b = &kernel->buffers[i];
      if (b->constant && hash(regions[i].data, b->bytes) != before[i]) {
        printf("input_changed %s 0\n", b->name);
        return 3;
      }
      if (!b->wanted) continue;
      if (pass == 0) {
        kept[i] = malloc(b->bytes + 1);
        if (!kept[i]) die("memory", "malloc");
        memcpy(kept[i], regions[i].data, b->bytes);
      } else {
        if (memcmp(kept[i], regions[i].data, b->bytes) == 0) continue;
        size_t k = 0;
        while (kept[i][k] == regions[i].data[k]) k++;
        printf("unstable %s %ld\n", b->name, (long)k);
        return 3;
      }
    }
  }
  FILE *f = fopen(output, "wb");
  if (!f) die("output", output);
  for (int i = 0; i < kernel->buffer_count; i++) {
    if (kept[i] && fwrite(kept[i], 1, kernel->buffers[i].bytes, f) != kernel->buffers[i].bytes) die("output", output);
    free(kept[i]);
  }
  if (fclose(f)) die("output", output);
  printf("ok\n");
  return 0;
}

// Workers that spin between calls, so that timings hold no wake-up. They live for one batch of samples: idle ones would
// keep processors from whoever is timed meanwhile.
static struct {
  int64_t threads;
  int64_t repeats;
  double min_ns;
  int64_t calls;
  uint64_t kept; // buffers that a call finds where the one before left them
  int stop;
} pool;
static int barrier_count, barrier_sense;

static void wait_all(int *sense) {
  *sense = !*sense;
  if (__atomic_add_fetch(&barrier_count, 1, __ATOMIC_ACQ_REL) == pool.threads) {
    __atomic_store_n(&barrier_count, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&barrier_sense, *sense, __ATOMIC_RELEASE);
  } else {
    // On a busy machine the other workers may wait for a processor; spinning would only keep it from them.
    for (long spins = 0; __atomic_load_n(&barrier_sense, __ATOMIC_ACQUIRE) != *sense; spins++)
      if (spins > 20000) sched_yield();
  }
}

#ifdef __linux__
static cpu_set_t allowed;
#endif

// Remembers the processors that this process may use; a thread that is pinned knows only its own.
static void watch_processors(void) {
#ifdef __linux__
  if (sched_getaffinity(0, sizeof allowed, &allowed)) CPU_ZERO(&allowed);
#endif
}

static void pin(int64_t cpu) {
#ifdef __linux__
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int c = 0; c < CPU_SETSIZE; c++)
    if (CPU_ISSET(c, &allowed) && cpu-- == 0) {
      CPU_SET(c, &one);
      sched_setaffinity(0, sizeof one, &one);
      return;
    }
#else
  (void)cpu;
#endif
}

static void work(int64_t w, int *sense) {
  const struct kg_program *program = &kernel->programs[kernel->program_count - 1];
  // Read while all are known to be here: whoever leaves the last barrier first may set the number for the next time before
  // the others have looked whether they are done.
  const int64_t repeats = pool.repeats;
  for (int64_t r = 0; r < repeats; r++)
    for (int phase = 0; phase < program->phase_count; phase++) {
      int64_t begin, end;
      share(&program->phases[phase], w, pool.threads, &begin, &end);
      if (begin < end)
        kernel->call(kernel->program_count - 1, phase, placed, regions[kernel->buffer_count].data, w, begin, end);
      if (pool.threads > 1) wait_all(sense);
    }
}

// Takes bytes out of all caches; processors that a program cannot tell to do so keep them.
static void flush(const unsigned char *bytes, size_t count) {
  for (size_t i = 0; i < count; i += 64) {
#if defined(__x86_64__)
    __asm__ volatile("clflush %0" : : "m"(bytes[i]) : "memory");
#elif defined(__aarch64__)
    __asm__ volatile("dc civac, %0" : : "r"(bytes + i) : "memory");
#else
    (void)bytes;
#endif
  }
}

// Whether the kernel uses a buffer that a call has to find in no cache.
static int is_cold(int i) {
  const struct kg_buffer *b = &kernel->buffers[i];
  return (b->constant || b->wanted) && !(pool.kept >> i & 1);
}

// What is between two calls of a layer in a network: the weights of all others go through the caches, and what it wrote
// leaves them.
static void chill(void) {
  // More than caches hold is gone anyway.
  const size_t most = (size_t)128 << 20;
  for (int i = 0; i < kernel->buffer_count; i++)
    if (is_cold(i)) flush(regions[i].data, regions[i].bytes < most ? regions[i].bytes : most);
  __sync_synchronize();
}

static void *thread_main(void *arg) {
  int64_t w = (int64_t)(intptr_t)arg;
  int sense = 0;
  pin(w);
  for (;;) {
    wait_all(&sense);
    if (pool.stop) return 0;
    work(w, &sense);
  }
}

// Calls in a row.
static double row(int64_t repeats, int *sense) {
  pool.repeats = repeats;
  if (pool.threads > 1) wait_all(sense);
  double start = now_ns();
  work(0, sense);
  return now_ns() - start;
}

// Time of so many calls.
static double timed(int64_t repeats, int *sense) {
  int cold = 0;
  for (int i = 0; i < kernel->buffer_count; i++) cold |= is_cold(i);
  if (!cold) return row(repeats, sense);
  double ns = 0;
  for (int64_t r = 0; r < repeats; r++) {
    chill();
    ns += row(1, sense);
  }
  return ns;
}

// Takes samples, each beside a peak, or finds out how many calls make one if `count` is 0.
static void sample(int count) {
  static int64_t repeats = 1;
  pthread_t ids[64];
  int sense = 0;
  pool.stop = barrier_count = barrier_sense = 0;
  for (int64_t w = 1; w < pool.threads; w++)
    if (pthread_create(&ids[w], 0, thread_main, (void *)(intptr_t)w)) die("threads", "pthread_create");
  pin(0);
  if (count == 0) {
    double ns = timed(1, &sense);
    for (repeats = pool.calls;;) {
      ns = timed(repeats, &sense);
      if (ns >= pool.min_ns || repeats > (int64_t)1 << 30) break;
      int64_t more = ns > 0 ? (int64_t)(1.2 * pool.min_ns / ns * (double)repeats) + 1 : repeats * 16;
      repeats = more < repeats * 16 ? more : repeats * 16;
    }
    printf("ready %.3f\n", ns / (double)repeats);
  } else {
    // What ran meanwhile has had the caches.
    timed(1, &sense);
  }
  for (int s = 0; s < count; s++) {
    double ns = timed(repeats, &sense) / (double)repeats;
    printf("sample %.3f %.4f\n", ns, fma_peak(2e5));
  }
  if (pool.threads > 1) {
    pool.stop = 1;
    wait_all(&sense);
    for (int64_t w = 1; w < pool.threads; w++) pthread_join(ids[w], 0);
  }
}

static void make_ready(int64_t threads, double min_ns, uint64_t kept, int64_t calls) {
  if (threads > 64) die("threads", "at most 64");
  place(0, 0, threads);
  for (int i = 0; i < kernel->program_count - 1; i++)
    run_all(i, placed, regions[kernel->buffer_count].data, threads, 0);
  pool.kept = kept;
  pool.threads = threads;
  pool.min_ns = min_ns;
  pool.calls = calls;
  sample(0);
}

static void load(const char *path) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) die("load", dlerror());
  kernel = dlsym(library, "kg_kernel");
  if (!kernel || kernel->buffer_count > MAX_BUFFERS) die("load", "there is no kernel in it");
}

int main(int argc, char **argv) {
  char line[4096], path[4096];
  int64_t number, calls;
  double min_ns;
  uint64_t kept;
  int count;
  if (argc != 4) die("usage", argv[0]);
#ifdef __linux__
  // Whoever started this may be killed while a kernel hangs here, and then nobody would end it.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
#ifdef __x86_64__
  // ARCH_REQ_XCOMP_PERM of tiles, which kernels of some levels use; other machines refuse, and have none.
  syscall(SYS_arch_prctl, 0x1023, 18);
#endif
#endif
  page_bytes = (size_t)sysconf(_SC_PAGESIZE);
  rlim_t memory = (rlim_t)strtoull(argv[3], 0, 10);
  struct rlimit limit = {memory, memory};
  if (memory && setrlimit(RLIMIT_AS, &limit)) die("memory", "setrlimit");
  watch_processors();
  load(argv[1]);
  input_path = argv[2];
  watch_faults();
  while (fgets(line, sizeof line, stdin)) {
    if (sscanf(line, "check %" SCNd64 " %4095[^\n]", &number, path) == 2) {
      int verdict = check(path, number);
      fflush(stdout);
      if (verdict) return verdict;
    } else if (sscanf(line, "time %" SCNd64 " %lf %" SCNu64 " %" SCNd64, &number, &min_ns, &kept, &calls) == 4) {
      make_ready(number, min_ns, kept, calls);
      printf("ok\n");
    } else if (sscanf(line, "sample %d", &count) == 1 && count > 0) {
      sample(count);
      printf("ok\n");
    } else {
      die("usage", "check, time or sample");
    }
    fflush(stdout);
  }
  return 0;
}
