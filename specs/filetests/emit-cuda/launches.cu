// Expected of a file test.
// sm_80; workspace 512 bytes
// launches_0: 8 x 1 x 1 blocks of 1 x 1 x 1 threads
// launches_1: 1 x 1 x 1 blocks of 1 x 1 x 1 threads
// launches_2: 4 x 1 x 1 blocks of 250 x 1 x 1 threads
extern "C" __global__ void __launch_bounds__(1) launches_0(const float *__restrict__ x, float *__restrict__ part) {
  const int b = (int)blockIdx.x;
  part[b] = 0.0f;
  for (int i = 0; i < 125; ++i) {
    part[b] += expf(x[b * 125 + i]);
  }
}

extern "C" __global__ void __launch_bounds__(1) launches_1(const float *__restrict__ part, float *__restrict__ total) {
  total[0] = 0.0f;
  for (int j = 0; j < 8; ++j) {
    total[0] += part[j];
  }
}

extern "C" __global__ void __launch_bounds__(250) launches_2(const float *__restrict__ x, float *__restrict__ y, const float *__restrict__ total) {
  const int b_2 = (int)blockIdx.x;
  const int t_2 = (int)threadIdx.x;
  y[b_2 * 250 + t_2] = expf(x[b_2 * 250 + t_2]) / total[0];
}
