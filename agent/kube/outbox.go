package kube

import (
	"context"

	"sluice/agent/source"
)

// batchSize bounds how many changes are handed over in one go, and how many wait for it.
const batchSize = 100

// outbox hands changes to a sink, in their order. A change that comes alone goes
// at once; those that come while the sink is busy go together.
type outbox struct {
	sink  source.Sink
	items chan outgoing
}

// outgoing is a change, or the question whether everything before it was handed over.
type outgoing struct {
	change source.Change
	handed chan<- struct{} // not nil: the question; closed as the answer
}

func newOutbox(sink source.Sink) *outbox {
	return &outbox{sink: sink, items: make(chan outgoing, batchSize)}
}

// put queues a change. It waits while the queue is full.
func (o *outbox) put(ctx context.Context, c source.Change) error {
	return o.send(ctx, outgoing{change: c})
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
		batch, question := o.collect(first)
		if len(batch) > 0 && o.sink.Apply(ctx, batch) != nil {
			return // the sink is ending, and so is ctx
		}
		if question != nil {
			close(question)
		}
	}
}

// collect takes what waits behind first, up to a question or a full batch.
func (o *outbox) collect(first outgoing) (batch []source.Change, question chan<- struct{}) {
	if first.handed != nil {
		return nil, first.handed
	}
	batch = append(make([]source.Change, 0, min(1+len(o.items), batchSize)), first.change)
	for len(batch) < batchSize {
		select {
		case item := <-o.items:
			if item.handed != nil {
				return batch, item.handed
			}
			batch = append(batch, item.change)
		default:
			return batch, nil
		}
	}
	return batch, nil
}
