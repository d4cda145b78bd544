// SPDX-License-Identifier: Apache-2.0

// Computes for a second in the rig. Go's functions have frame pointers and no .eh_frame; goSpin has
// no frame, so call chains lead to the caller of goOuter.
package main

import "os"

//go:noinline
func goSpin(steps uint64) uint64 {
	sum := uint64(1)
	for i := uint64(0); i < steps; i++ {
		sum = sum*6364136223846793005 + i
	}
	return sum
}

//go:noinline
func goOuter(steps uint64) uint64 {
	return goSpin(steps) + 1
}

func main() {
	sum := uint64(0)
	for i := 0; i < 400; i++ {
		sum += goOuter(200000)
	}
	if sum == 1 {
		os.Exit(1)
	}
}
