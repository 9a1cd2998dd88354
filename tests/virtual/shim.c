/* What code from stock MLIR calls that is in no library of the system. */

#include <stdint.h>
#include <string.h>

typedef struct {
  int64_t rank;
  void *descriptor; /* base, data, offset, sizes[rank], strides[rank] */
} UnrankedMemRef;

static void copy(int64_t rank, int64_t bytes, const char *read, char *write, const int64_t *sizes,
                 const int64_t *read_strides, const int64_t *write_strides) {
  if (rank == 0) {
    memcpy(write, read, bytes);
    return;
  }
  for (int64_t i = 0; i < sizes[0]; i++)
    copy(rank - 1, bytes, read + bytes * i * read_strides[0], write + bytes * i * write_strides[0], sizes + 1,
         read_strides + 1, write_strides + 1);
}

/* memref.copy of a part of a tile, whose elements are so many bytes wide. */
void memrefCopy(int64_t bytes, UnrankedMemRef *source, UnrankedMemRef *destination) {
  const int64_t rank = source->rank, *from = source->descriptor, *to = destination->descriptor;
  copy(rank, bytes, (const char *)from[1] + bytes * from[2], (char *)to[1] + bytes * to[2], from + 3, from + 3 + rank,
       to + 3 + rank);
}

/* fp32 to bf16, to nearest, ties to even; returned where the ABI returns a bf16: the low half of a float register. */
float __truncsfbf2(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  bits = value != value ? bits >> 16 | 0x40 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  memcpy(&value, &bits, sizeof bits);
  return value;
}
