package kube

import (
	"context"

	"golang.org/x/sync/semaphore"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice/agent/source"
)

const (
	// batchSize bounds how many changes are handed over in one go, and how many wait for it.
	batchSize = 100
	// maxQueued bounds what waits and what is being handed over, in bytes of memory. A larger
	// object goes alone.
	maxQueued = 1 << 20
	// inMemory is how many bytes of memory an object takes at most for each byte of its encoding: measured were 3 for a Service
	// of many ports, and 4 to 7 for an EndpointSlice of many endpoints.
	inMemory = 8
)

// outbox hands changes to a sink, in their order. A change that comes alone goes
// at once; those that come while the sink is busy go together.
type outbox struct {
	sink  source.Sink
	items chan outgoing
	room  *semaphore.Weighted
}

// outgoing is a change, or the question whether everything before it was handed over.
type outgoing struct {
	change source.Change
	weight int64           // of the change, in the outbox's room
	handed chan<- struct{} // not nil: the question; closed as the answer
}

func newOutbox(sink source.Sink) *outbox {
	return &outbox{sink: sink, items: make(chan outgoing, batchSize), room: semaphore.NewWeighted(maxQueued)}
}

// weigh tells how many bytes of memory an object takes, about; what is more than all the room, as all of it.
func weigh(obj metav1.Object) int64 {
	sized, ok := obj.(interface{ Size() int }) // of generated.pb.go: of the encoding
	if !ok {
		return 0 // nil: the object is gone
	}
	return min(int64(sized.Size())*inMemory, maxQueued)
}

// put queues a change. It waits while the queue is full.
func (o *outbox) put(ctx context.Context, c source.Change) error {
	item := outgoing{change: c, weight: weigh(c.Object)}
	if err := o.room.Acquire(ctx, item.weight); err != nil {
		return err
	}
	return o.send(ctx, item)
}

// flush returns when the sink has accepted what was put before.
func (o *outbox) flush(ctx context.Context) error {
	handed := make(chan struct{})
	if err := o.send(ctx, outgoing{handed: handed}); err != nil {
		return err
	}
	select {
	case <-handed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (o *outbox) send(ctx context.Context, item outgoing) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case o.items <- item:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run hands over until ctx ends or the sink does not accept any more.
func (o *outbox) run(ctx context.Context) {
	for {
		var first outgoing
		select {
		case <-ctx.Done():
			return
		case first = <-o.items:
		}
		batch, weight, question := o.collect(first)
		if len(batch) > 0 && o.sink.Apply(ctx, batch) != nil {
			return // the sink is ending, and so is ctx
		}
		o.room.Release(weight)
		if question != nil {
			close(question)
		}
	}
}

// collect takes what waits behind first, up to a question or a full batch.
func (o *outbox) collect(first outgoing) (batch []source.Change, weight int64, question chan<- struct{}) {
	if first.handed != nil {
		return nil, 0, first.handed
	}
	batch = append(make([]source.Change, 0, min(1+len(o.items), batchSize)), first.change)
	weight = first.weight
	for len(batch) < batchSize {
		select {
		case item := <-o.items:
			if item.handed != nil {
				return batch, weight, item.handed
			}
			batch, weight = append(batch, item.change), weight+item.weight
		default:
			return batch, weight, nil
		}
	}
	return batch, weight, nil
}
