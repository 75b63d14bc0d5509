package store

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"
)

// TestTruncatedAnywhere and those below look at many faults of one sort. What holds for all of them
// is in openDamaged.
func TestTruncatedAnywhere(t *testing.T) {
	data, records := template(t)
	path := shm(t)
	for size := 0; size < len(data); size += pageSize/2 + 13 {
		if openDamaged(t, path, data[:size], records); t.Failed() {
			t.Fatalf("truncated to %d bytes", size)
		}
	}
}

func TestFlippedBits(t *testing.T) {
	data, records := template(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	path := shm(t)
	damaged, used := 0, int(roots(bytes.NewReader(data))[0].pages)*pageSize
	for range 300 {
		b := bytes.Clone(data)
		at := r.IntN(used)
		if r.IntN(2) == 0 { // headers and element tables matter most
			at = at/pageSize*pageSize + r.IntN(200)
		}
		b[at] ^= 1 << r.IntN(8)
		cached, _ := openDamaged(t, path, b, records)
		if !cached.Complete {
			damaged++
		}
		if t.Failed() {
			t.Fatalf("a bit of byte %d is flipped", at)
		}
	}
	if damaged == 0 {
		t.Error("no flipped bit was noticed")
	}
}

func TestZeroedAndStalePages(t *testing.T) {
	data, records := template(t)
	path := shm(t)
	for id := range roots(bytes.NewReader(data))[0].pages {
		for _, with := range []string{"zeros", "another page", "noise"} {
			b := bytes.Clone(data)
			page := b[id*pageSize : (id+1)*pageSize]
			switch with {
			case "zeros":
				clear(page)
			case "another page":
				copy(page[8:], b[(id^1)*pageSize+8:]) // with the right number
			case "noise":
				copy(page, random(pageSize))
			}
			if openDamaged(t, path, b, records); t.Failed() {
				t.Fatalf("page %d is replaced by %s", id, with)
			}
		}
	}
}
