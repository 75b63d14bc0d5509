// Package vm boots Debian's kernels on boards that QEMU emulates, so that ARM programs meet the
// kernels, the CPUs and the little memory that they are for.
//
// Kernels and tools come from the Debian archive that this machine's apt uses, and are
// kept outside the tree: in sluice/qemu below $XDG_CACHE_HOME, or ~/.cache. Neither they nor the emulation need root.
package vm
