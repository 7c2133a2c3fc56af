// Runs the functions of one kernel: checked (guard pages, poison, canaries) or timed.
//
// usage: harness run INPUT OUTPUT WORKERS
//        harness time INPUT THREADS SAMPLES MIN_NS
//
// INPUT holds the parameters that the kernel reads, one after the other; OUTPUT gets those that it writes.
// The last line on standard output is the verdict: `ok`, or a word with details.

struct region {
  unsigned char *map, *data;
  size_t map_bytes, bytes;
};

static size_t page_bytes;
static struct region regions[PARAM_COUNT + 1];
static const char *region_name(int i) { return i < PARAM_COUNT ? PARAMS[i].name : "workspace"; }

static void die(const char *what, const char *detail) {
  printf("error %s %s\n", what, detail);
  fflush(stdout);
  _exit(2);
}

// Buffers lie against an inaccessible page: on their left if `end` is 0, on their right otherwise. The bytes on the other
// side, up to a page border, hold a canary.
static struct region region_new(size_t bytes, int end) {
  struct region r;
  size_t body = (bytes + page_bytes - 1) / page_bytes * page_bytes + page_bytes;
  r.map_bytes = body + 2 * page_bytes;
  r.map = mmap(0, r.map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (r.map == MAP_FAILED) die("memory", "mmap");
  if (mprotect(r.map, page_bytes, PROT_NONE) || mprotect(r.map + page_bytes + body, page_bytes, PROT_NONE))
    die("memory", "mprotect");
  r.bytes = bytes;
  r.data = r.map + page_bytes + (end ? body - bytes : 0);
  memset(r.map + page_bytes, 0xA5, body);
  return r;
}

static long region_canary(const struct region *r) {
  const unsigned char *first = r->map + page_bytes, *last = r->map + r->map_bytes - page_bytes;
  for (const unsigned char *p = first; p < last; p++)
    if ((p < r->data || p >= r->data + r->bytes) && *p != 0xA5) return p - r->data;
  return 0;
}

static void on_fault(int signal, siginfo_t *info, void *context) {
  (void)context;
  const unsigned char *at = info->si_addr;
  for (int i = 0; i <= PARAM_COUNT; i++)
    if (at >= regions[i].map && at < regions[i].map + regions[i].map_bytes) {
      printf("fault %s %ld\n", region_name(i), (long)(at - regions[i].data));
      fflush(stdout);
      _exit(3);
    }
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

static unsigned char *read_file(const char *path) {
  FILE *f = fopen(path, "rb");
  size_t bytes = 0;
  for (int i = 0; i < PARAM_COUNT; i++) bytes += PARAMS[i].reads ? PARAMS[i].bytes : 0;
  unsigned char *data = malloc(bytes + 1);
  if (!f || !data || fread(data, 1, bytes, f) != bytes) die("input", path);
  fclose(f);
  return data;
}

static double now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

// Iterations of a phase that worker `w` of `workers` runs.
static void share(int phase, int64_t w, int64_t workers, int64_t *begin, int64_t *end) {
  if (PHASES[phase].parallel) {
    *begin = PHASES[phase].extent * w / workers;
    *end = PHASES[phase].extent * (w + 1) / workers;
  } else {
    *begin = 0;
    *end = w == 0 ? PHASES[phase].extent : 0;
  }
}

// Runs all phases; `reverse` hands out the iterations in the opposite order, which must not matter.
static void run_all(void **p, unsigned char *ws, int64_t workers, int reverse) {
  for (int phase = 0; phase < PHASE_COUNT; phase++)
    for (int64_t i = 0; i < workers; i++) {
      int64_t w = reverse ? workers - 1 - i : i, begin, end;
      share(phase, w, workers, &begin, &end);
      if (begin < end) call(phase, p, ws, w, begin, end);
    }
}

static int run(const char *input, const char *output, int64_t workers) {
  unsigned char *data = read_file(input);
  unsigned char *kept[PARAM_COUNT + 1] = {0};
  watch_faults();
  for (int pass = 0; pass < 2; pass++) {
    void *p[PARAM_COUNT + 1];
    const unsigned char *next = data;
    for (int i = 0; i < PARAM_COUNT; i++) {
      struct region *r = &regions[i];
      *r = region_new(PARAMS[i].bytes, pass);
      memset(r->data, pass ? 0x7F : 0xFF, r->bytes);
      if (PARAMS[i].reads) {
        memcpy(r->data, next, r->bytes);
        next += r->bytes;
      }
      p[i] = r->data;
    }
    regions[PARAM_COUNT] = region_new((size_t)(WORKSPACE_BYTES + workers * WORKER_BYTES), pass);
    memset(regions[PARAM_COUNT].data, pass ? 0x7F : 0xFF, regions[PARAM_COUNT].bytes);
    run_all(p, regions[PARAM_COUNT].data, workers, pass);
    next = data;
    for (int i = 0; i <= PARAM_COUNT; i++) {
      long at = region_canary(&regions[i]);
      if (at) {
        printf("canary %s %ld\n", region_name(i), at);
        return 3;
      }
      if (i == PARAM_COUNT) break;
      if (PARAMS[i].reads) {
        if (!PARAMS[i].writes && memcmp(regions[i].data, next, PARAMS[i].bytes)) {
          printf("input_changed %s 0\n", PARAMS[i].name);
          return 3;
        }
        next += PARAMS[i].bytes;
      }
      if (!PARAMS[i].writes) continue;
      if (pass == 0) {
        kept[i] = malloc(PARAMS[i].bytes + 1);
        if (!kept[i]) die("memory", "malloc");
        memcpy(kept[i], regions[i].data, PARAMS[i].bytes);
      } else {
        for (size_t b = 0; b < PARAMS[i].bytes; b++)
          if (kept[i][b] != regions[i].data[b]) {
            printf("unstable %s %ld\n", PARAMS[i].name, (long)b);
            return 3;
          }
      }
    }
    for (int i = 0; i <= PARAM_COUNT; i++) munmap(regions[i].map, regions[i].map_bytes);
  }
  FILE *f = fopen(output, "wb");
  if (!f) die("output", output);
  for (int i = 0; i < PARAM_COUNT; i++)
    if (PARAMS[i].writes && fwrite(kept[i], 1, PARAMS[i].bytes, f) != PARAMS[i].bytes) die("output", output);
  if (fclose(f)) die("output", output);
  printf("ok\n");
  return 0;
}

// A pool that spins between calls, so that timings hold no wake-up.
static struct {
  void **p;
  unsigned char *ws;
  int64_t threads;
  int64_t repeats;
  int generation;
  int arrived;
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

static void pin(int64_t cpu) {
#ifdef __linux__
  cpu_set_t allowed, one;
  if (sched_getaffinity(0, sizeof allowed, &allowed)) return;
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
  for (int64_t r = 0; r < pool.repeats; r++)
    for (int phase = 0; phase < PHASE_COUNT; phase++) {
      int64_t begin, end;
      share(phase, w, pool.threads, &begin, &end);
      if (begin < end) call(phase, pool.p, pool.ws, w, begin, end);
      if (pool.threads > 1) wait_all(sense);
    }
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

static double timed(int64_t repeats, int *sense) {
  pool.repeats = repeats;
  if (pool.threads > 1) wait_all(sense);
  double start = now_ns();
  work(0, sense);
  return now_ns() - start;
}

static int time_(const char *input, int64_t threads, int samples, double min_ns) {
  unsigned char *data = read_file(input), *next = data;
  void *p[PARAM_COUNT + 1];
  watch_faults();
  for (int i = 0; i < PARAM_COUNT; i++) {
    regions[i] = region_new((PARAMS[i].bytes + 63) / 64 * 64, 0);
    memset(regions[i].data, 0, PARAMS[i].bytes);
    if (PARAMS[i].reads) {
      memcpy(regions[i].data, next, PARAMS[i].bytes);
      next += PARAMS[i].bytes;
    }
    p[i] = regions[i].data;
  }
  regions[PARAM_COUNT] = region_new((size_t)(WORKSPACE_BYTES + threads * WORKER_BYTES), 0);
  memset(regions[PARAM_COUNT].data, 0, regions[PARAM_COUNT].bytes);
  pool.p = p;
  pool.ws = regions[PARAM_COUNT].data;
  pool.threads = threads;
  pthread_t ids[64];
  if (threads > 64) die("threads", "at most 64");
  for (int64_t w = 1; w < threads; w++)
    if (pthread_create(&ids[w], 0, thread_main, (void *)(intptr_t)w)) die("threads", "pthread_create");
  // Last, because a thread inherits the processors of the one that makes it.
  if (threads > 1) pin(0);
  int sense = 0;
  int64_t repeats = 1;
  for (;;) {
    double ns = timed(repeats, &sense);
    if (ns >= min_ns || repeats > (int64_t)1 << 30) break;
    int64_t more = ns > 0 ? (int64_t)(1.2 * min_ns / ns * (double)repeats) + 1 : repeats * 16;
    repeats = more < repeats * 16 ? more : repeats * 16;
  }
  for (int s = 0; s < samples; s++) {
    double ns = timed(repeats, &sense) / (double)repeats;
    double flops = fma_peak(2e5);
    printf("sample %.3f %.4f\n", ns, flops);
  }
  if (threads > 1) {
    pool.stop = 1;
    wait_all(&sense);
    for (int64_t w = 1; w < threads; w++) pthread_join(ids[w], 0);
  }
  printf("ok\n");
  return 0;
}

int main(int argc, char **argv) {
  page_bytes = (size_t)sysconf(_SC_PAGESIZE);
  if (argc == 5 && !strcmp(argv[1], "run")) return run(argv[2], argv[3], atoll(argv[4]));
  if (argc == 6 && !strcmp(argv[1], "time")) return time_(argv[2], atoll(argv[3]), atoi(argv[4]), atof(argv[5]));
  die("usage", argv[0]);
}
