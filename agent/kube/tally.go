package kube

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"

	"sluice/agent/source"
)

const (
	// maxServices and maxSlices bound a list in objects. Kubernetes is tested up to 10,000 Services and 150,000 Pods
	// (Kubernetes' scalability thresholds, sig-scalability); a Service has a slice of each family for up to 100 endpoints. Many
	// more than that the agent has no memory for. While a list is read its names are kept: 100,000 take 12 MB, and 31 if they are the longest.
	maxServices, maxSlices = 50_000, 100_000
	// maxOthers is for the Nodes, of which one has this node's name, and the ServiceCIDRs, of which a cluster has a few.
	maxOthers = 1_000
	// maxListBytes bounds what the objects of a list have in bytes of their encoding. The cache takes no more.
	maxListBytes = 256 << 20
)

// errTooLarge: a list has no end, or none that a small machine comes to.
var errTooLarge = errors.New("the list is too large")

// tally counts what is read of a list, over all its pages.
type tally struct {
	most    int // objects
	objects int
	bytes   int64
	// exist are the objects' names; nil: they are only counted.
	exist map[source.Name]struct{}
}

// count takes note of one more object. The error says that it is one too many.
func (t *tally) count(obj runtime.Object) error {
	t.objects++
	if sized, ok := obj.(interface{ Size() int }); ok { // of generated.pb.go
		t.bytes += int64(sized.Size())
	}
	switch {
	case t.objects > t.most:
		return fmt.Errorf("%w: it has more than %d objects", errTooLarge, t.most)
	case t.bytes > maxListBytes:
		return fmt.Errorf("%w: it has more than %d MiB in its first %d objects", errTooLarge, maxListBytes>>20, t.objects)
	}
	return nil
}

// found is how many different objects there are, or if they are only counted, how many there are.
func (t *tally) found() int {
	if t.exist == nil {
		return t.objects
	}
	return len(t.exist)
}
