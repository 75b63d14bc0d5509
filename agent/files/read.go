package files

import (
	"context"
	"fmt"
	"hash/maphash"
	"io"
	"os"
	"runtime"
	"sync"
	"time"
)

// bigDocument is a size in bytes above which documents are decoded one at a time:
// the YAML library needs many times a document's size.
const bigDocument = 256 << 10

// task is one step of reading: a document, or the end of a file.
type task struct {
	file *file
	chunk
	buf  []byte // kept for the next document
	hash uint64
	// same is the document of the version before that has the same text; then nothing is decoded.
	same    *document
	decoded decoded
	done    chan struct{} // of capacity 1
	// end marks the end of the file, and result says how it came; before, it has the id only.
	end    bool
	result readResult
}

// readResult is how the reading of a file ended.
type readResult struct {
	id fileID
	// gone: there is no such file any more.
	gone bool
	// busy: it is being written; it is worth another try after wait.
	busy bool
	wait time.Duration
	err  error
}

// reader reads files in order and decodes their documents on all cores, while
// what it holds stays bounded: a few documents.
type reader struct {
	decoder *decoder
	free    chan *task // tasks that are not in use
	work    chan *task // documents to decode
	ordered chan *task // all tasks, in the order of files and documents
	big     sync.Mutex
}

// startReader starts reading files of a directory, until ctx ends. The tasks come
// out of r.ordered, which must be read until it is closed; each goes back by r.release.
func startReader(ctx context.Context, d *decoder, dir *os.File, files []*file) *reader {
	workers := runtime.GOMAXPROCS(0)
	window := 4 * workers
	r := &reader{
		decoder: d,
		free:    make(chan *task, window),
		work:    make(chan *task, window),
		ordered: make(chan *task, window),
	}
	for range window {
		r.free <- &task{done: make(chan struct{}, 1)}
	}
	for range workers {
		go r.decodeAll()
	}
	go func() {
		defer close(r.ordered)
		defer close(r.work)
		for _, f := range files {
			if ctx.Err() != nil {
				return
			}
			result := r.read(ctx, dir, f)
			end := <-r.free
			end.file, end.end, end.result = f, true, result
			end.done <- struct{}{}
			r.ordered <- end
		}
	}()
	return r
}

func (r *reader) decodeAll() {
	for t := range r.work {
		if len(t.text) > bigDocument {
			r.big.Lock()
			t.decoded = r.decoder.decode(t.text, isJSON(t.file.name))
			r.big.Unlock()
		} else {
			t.decoded = r.decoder.decode(t.text, isJSON(t.file.name))
		}
		t.done <- struct{}{}
	}
}

// release gives a task back for another document.
func (r *reader) release(t *task) {
	if cap(t.buf) > bigDocument {
		t.buf = nil
	}
	*t = task{done: t.done, buf: t.buf}
	r.free <- t
}

// read puts a file's documents into the pipeline.
func (r *reader) read(ctx context.Context, dir *os.File, f *file) readResult {
	in, result := open(dir, f)
	if in == nil {
		return result
	}
	defer in.Close()
	before := make(map[uint64]*document, len(f.docs))
	for _, d := range f.docs {
		before[d.hash] = d
	}
	s := newSplitter(in, isJSON(f.name))
	for ctx.Err() == nil {
		t := <-r.free
		c, err := s.next(t.buf)
		if err != nil {
			r.free <- t
			if err == io.EOF {
				return verify(in, result.id)
			}
			result.err = fmt.Errorf("read the file: %w", err)
			return result
		}
		t.file, t.chunk, t.result = f, c, result
		if c.text != nil {
			t.buf = c.text[:0]
		}
		r.submit(t, before)
	}
	result.err = ctx.Err()
	return result
}

// submit hands a document to the workers, unless the version before has it already.
func (r *reader) submit(t *task, before map[uint64]*document) {
	if t.fault != "" {
		t.hash = maphash.String(r.decoder.seed, t.fault)
	} else {
		t.hash = r.decoder.hash(t.text)
	}
	switch t.same = before[t.hash]; {
	case t.same != nil:
		delete(before, t.hash) // the same text again is another document
		t.done <- struct{}{}
	case t.fault != "":
		t.decoded = decoded{refused: t.fault}
		t.done <- struct{}{}
	default:
		r.work <- t
	}
	r.ordered <- t
}
