package kube

import (
	"context"
	"fmt"
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"sluice/agent/source"
)

// largeObject is from how many bytes of its encoding an object takes so much memory, some times that while it is decoded, that it is to be
// given back.
const largeObject = 1 << 20

// inStepInterval is the least time between two reports of a kind's resourceVersion.
const inStepInterval = time.Second

// sinkStore is a reflector's store that keeps nothing: every object is trimmed and
// handed over as it comes, and only its name goes on.
type sinkStore struct {
	ctx  context.Context // of the reflector; the interface of stores has none
	kind source.Kind
	want reflect.Type // of the kind's objects
	out  *outbox
	// inStep is told the resourceVersion up to which everything was accepted; may be nil.
	inStep func(kind source.Kind, resourceVersion string)
	// large is called for each object that took much memory for a moment; may be nil.
	large func()
	// replaced is called when all objects of the kind were handed over once more.
	replaced func(kind source.Kind)

	lastStep time.Time
}

var (
	_ cache.ReflectorStore         = (*sinkStore)(nil)
	_ cache.ReflectorBookmarkStore = (*sinkStore)(nil)
)

// Add implements cache.ReflectorStore.
func (s *sinkStore) Add(obj any) error {
	_, err := s.handOver(obj)
	return err
}

// Update implements cache.ReflectorStore.
func (s *sinkStore) Update(obj any) error { return s.Add(obj) }

// handOver passes an object on and returns its name.
func (s *sinkStore) handOver(obj any) (source.Name, error) {
	o, ok := obj.(metav1.Object)
	if !ok || reflect.TypeOf(obj) != s.want {
		return source.Name{}, fmt.Errorf("%w: a %T in place of a %s", errJunk, obj, s.kind)
	}
	if sized, ok := obj.(interface{ Size() int }); ok && s.large != nil && sized.Size() >= largeObject { // of generated.pb.go
		defer s.large() // when it was trimmed, and is in the queue
	}
	source.Trim(o)
	name := source.Name{Namespace: o.GetNamespace(), Name: o.GetName()}
	return name, s.out.put(s.ctx, source.Change{Kind: s.kind, Namespace: name.Namespace, Name: name.Name, Object: o})
}

// Delete implements cache.ReflectorStore.
func (s *sinkStore) Delete(obj any) error {
	o, ok := obj.(metav1.Object)
	if !ok {
		return fmt.Errorf("%w: a %T in place of a %s", errJunk, obj, s.kind)
	}
	return s.out.put(s.ctx, source.Change{Kind: s.kind, Namespace: o.GetNamespace(), Name: o.GetName()})
}

// Replace implements cache.ReflectorStore. The one item has the names of objects that were handed over.
func (s *sinkStore) Replace(items []any, resourceVersion string) error {
	if len(items) != 1 {
		return fmt.Errorf("%d lists of %s in place of one", len(items), s.kind)
	}
	l, ok := items[0].(*listed)
	if !ok {
		return fmt.Errorf("a list of %s holds a %T", s.kind, items[0])
	}
	if err := s.out.replace(s.ctx, s.kind, l.exist); err != nil {
		return err
	}
	s.lastStep = time.Time{}
	s.step(resourceVersion)
	s.replaced(s.kind)
	return nil
}

// Bookmark implements cache.ReflectorBookmarkStore. The server sends one each minute.
func (s *sinkStore) Bookmark(resourceVersion string) error {
	if err := s.out.flush(s.ctx, s.kind); err != nil {
		return err
	}
	s.step(resourceVersion)
	return nil
}

func (s *sinkStore) step(resourceVersion string) {
	now := time.Now()
	if s.inStep == nil || now.Sub(s.lastStep) < inStepInterval {
		return
	}
	s.lastStep = now
	s.inStep(s.kind, resourceVersion)
}

// Resync implements cache.ReflectorStore; there is nothing to do again.
func (s *sinkStore) Resync() error { return nil }

// listed stands for the objects of a list, which were handed over.
type listed struct{ exist map[source.Name]struct{} }

// GetObjectKind implements runtime.Object.
func (*listed) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object. Nobody changes one.
func (l *listed) DeepCopyObject() runtime.Object { return l }
