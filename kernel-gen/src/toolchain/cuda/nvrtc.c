// Loads libnvrtc and compiles what it is given, one source after the other, until its input ends.
//
// usage: nvrtc <libnvrtc> [<libnvrtc-builtins>]
//
// The first answer is `nvrtc <major> <minor> <architecture>...`, or `error <why>` and the end. A request is
// `compile <strings>` and that many strings, each `<bytes>` on a line and then the bytes: the name, the source, the
// options. The answer is `done <result> <bytes of PTX> <bytes of cubin> <bytes of log>` on a line, then these bytes.

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct program program;

static struct {
    int (*version)(int *, int *);
    const char *(*error_string)(int);
    int (*create)(program **, const char *, const char *, int, const char *const *, const char *const *);
    int (*destroy)(program **);
    int (*compile)(program *, int, const char *const *);
    int (*ptx_size)(program *, size_t *);
    int (*ptx)(program *, char *);
    int (*cubin_size)(program *, size_t *);
    int (*cubin)(program *, char *);
    int (*log_size)(program *, size_t *);
    int (*log)(program *, char *);
    int (*count_archs)(int *);
    int (*archs)(int *);
} nvrtc;

static FILE *out;

static void fail(const char *what, const char *why) {
    fprintf(out, "error %s: %s\n", what, why ? why : "unknown reason");
    fflush(out);
    exit(1);
}

// ISO C has no cast from an object's address to a function's, POSIX has: through the bytes.
static void find(void *library, const char *name, void *function) {
    void *address = dlsym(library, name);
    if (!address) fail(name, "the library does not have it; NVRTC 11.2 or newer is needed");
    memcpy(function, &address, sizeof address);
}

static void load(const char *path, const char *builtins) {
    // libnvrtc looks for its builtins by name and only where the loader looks. One that is loaded already is found.
    if (builtins && !dlopen(builtins, RTLD_NOW | RTLD_GLOBAL)) fail(builtins, dlerror());
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) fail(path, dlerror());
    find(library, "nvrtcVersion", &nvrtc.version);
    find(library, "nvrtcGetErrorString", &nvrtc.error_string);
    find(library, "nvrtcCreateProgram", &nvrtc.create);
    find(library, "nvrtcDestroyProgram", &nvrtc.destroy);
    find(library, "nvrtcCompileProgram", &nvrtc.compile);
    find(library, "nvrtcGetPTXSize", &nvrtc.ptx_size);
    find(library, "nvrtcGetPTX", &nvrtc.ptx);
    find(library, "nvrtcGetCUBINSize", &nvrtc.cubin_size);
    find(library, "nvrtcGetCUBIN", &nvrtc.cubin);
    find(library, "nvrtcGetProgramLogSize", &nvrtc.log_size);
    find(library, "nvrtcGetProgramLog", &nvrtc.log);
    find(library, "nvrtcGetNumSupportedArchs", &nvrtc.count_archs);
    find(library, "nvrtcGetSupportedArchs", &nvrtc.archs);
}

static void greet(void) {
    int major = 0, minor = 0, count = 0;
    int result = nvrtc.version(&major, &minor);
    if (!result) result = nvrtc.count_archs(&count);
    int *archs = calloc((size_t)count + 1, sizeof *archs);
    if (!archs) fail("memory", "there is not enough");
    if (!result) result = nvrtc.archs(archs);
    if (result) fail("NVRTC", nvrtc.error_string(result));
    fprintf(out, "nvrtc %d %d", major, minor);
    for (int i = 0; i < count; i++) fprintf(out, " %d", archs[i]);
    fputc('\n', out);
    fflush(out);
    free(archs);
}

static char *read_string(void) {
    size_t bytes;
    if (scanf("%zu", &bytes) != 1 || getchar() != '\n') return NULL;
    char *text = calloc(bytes + 1, 1);
    if (text && fread(text, 1, bytes, stdin) == bytes) return text;
    free(text);
    return NULL;
}

typedef struct {
    char *bytes;
    size_t size;
} blob;

// What NVRTC does not have is empty: there is no cubin for a virtual architecture.
static blob get(program *p, int (*size)(program *, size_t *), int (*text)(program *, char *)) {
    blob b = {NULL, 0};
    if (size(p, &b.size) || !b.size) return (blob){NULL, 0};
    b.bytes = calloc(b.size, 1);
    if (b.bytes && !text(p, b.bytes)) return b;
    free(b.bytes);
    return (blob){NULL, 0};
}

// The size of a text counts the zero at its end.
static blob get_text(program *p, int (*size)(program *, size_t *), int (*text)(program *, char *)) {
    blob b = get(p, size, text);
    if (b.size && b.bytes[b.size - 1] == 0) b.size--;
    return b;
}

static void answer(const char *name, const char *source, int count, const char *const *options) {
    program *p = NULL;
    blob ptx = {NULL, 0}, cubin = {NULL, 0}, log = {NULL, 0};
    int result = nvrtc.create(&p, source, name, 0, NULL, NULL);
    if (!result) {
        result = nvrtc.compile(p, count, options);
        log = get_text(p, nvrtc.log_size, nvrtc.log);
        if (!result) {
            ptx = get_text(p, nvrtc.ptx_size, nvrtc.ptx);
            cubin = get(p, nvrtc.cubin_size, nvrtc.cubin);
        }
        nvrtc.destroy(&p);
    }
    if (result && !log.size) {
        log.bytes = strdup(nvrtc.error_string(result));
        log.size = log.bytes ? strlen(log.bytes) : 0;
    }
    fprintf(out, "done %d %zu %zu %zu\n", result, ptx.size, cubin.size, log.size);
    blob all[3] = {ptx, cubin, log};
    for (int i = 0; i < 3; i++) {
        if (all[i].size) fwrite(all[i].bytes, 1, all[i].size, out);
        free(all[i].bytes);
    }
    fflush(out);
}

int main(int argc, char **argv) {
    // Answers have an output of their own: what a library prints must not get between them.
    int own = dup(1);
    out = own < 0 ? NULL : fdopen(own, "wb");
    if (!out || dup2(2, 1) < 0 || argc < 2) return 2;
    load(argv[1], argc > 2 ? argv[2] : NULL);
    greet();
    int count;
    while (scanf(" compile %d", &count) == 1 && count >= 2) {
        if (getchar() != '\n') return 2;
        char **strings = calloc((size_t)count, sizeof *strings);
        if (!strings) return 2;
        for (int i = 0; i < count; i++) {
            if (!(strings[i] = read_string())) return 2;
        }
        answer(strings[0], strings[1], count - 2, (const char *const *)strings + 2);
        for (int i = 0; i < count; i++) free(strings[i]);
        free(strings);
    }
    return 0;
}
