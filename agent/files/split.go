package files

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// Limits of what is read. They keep memory bounded whatever lies in the directory.
const (
	// maxDocument is the size of the largest document that is read, in bytes. An API
	// server's own limit for one object is 3 MiB, etcd's 1.5 MiB.
	maxDocument = 4 << 20
	// maxDocuments is the number of documents that are read of one file.
	maxDocuments = 1 << 17
	// bufferSize is the size of the buffer that a file is read through.
	bufferSize = 64 << 10
)

// Why a document is not even decoded.
const (
	faultTooBig  = "the document is larger than 4 MiB, the most that is read: split it, for example into one object a document"
	faultBinary  = "the file holds a NUL byte, so it is no YAML or JSON text (binary, or UTF-16?): it is read no further"
	faultTooMuch = "the file has more than 131072 documents, the most that are read: split it; it is read no further"
)

// chunk is one document's text, cut out of its file.
type chunk struct {
	text []byte
	// number of the document in the file, from 1. Those with nothing but comments do not count.
	number int32
	// line of the file, from 1, that text begins in.
	line int32
	// fault is why there is no text.
	fault string
}

// splitter cuts a stream into its documents, without holding more than one of them.
type splitter struct {
	r      *bufio.Reader
	isJSON bool
	line   int32 // the number of the line being read
	number int32
	done   bool
}

func newSplitter(r io.Reader, isJSON bool) *splitter {
	s := &splitter{r: bufio.NewReaderSize(r, bufferSize), isJSON: isJSON, line: 1}
	if bom, _ := s.r.Peek(3); string(bom) == "\ufeff" {
		_, _ = s.r.Discard(3)
	}
	return s
}

// next returns the next document, its text appended to buf[:0], or io.EOF.
func (s *splitter) next(buf []byte) (chunk, error) {
	if s.done {
		return chunk{}, io.EOF
	}
	var c chunk
	var err error
	if s.isJSON {
		c, err = s.nextJSON(buf[:0])
	} else {
		c, err = s.nextYAML(buf[:0])
	}
	if err != nil {
		return chunk{}, err
	}
	s.number++
	c.number = s.number
	if c.fault == faultBinary {
		s.done = true
	} else if s.number > maxDocuments {
		s.done = true
		c.fault = faultTooMuch
	}
	return c, nil
}

// nextYAML reads up to the next line that begins with a document marker. The
// markers count in the first column only, where YAML allows nothing else that
// looks like them, not even within a text block.
func (s *splitter) nextYAML(buf []byte) (chunk, error) {
	c := chunk{text: buf}
	started := false // there is something other than comments
	for {
		if mark := s.marker(); mark != "" && started {
			if mark == "..." {
				s.skipLine()
			}
			return c, nil
		}
		part, err := s.r.ReadSlice('\n')
		whole := len(part) > 0 && part[len(part)-1] == '\n'
		if bytes.IndexByte(part, 0) >= 0 {
			return chunk{line: s.line, fault: faultBinary}, nil
		}
		if !started && hasContent(part) {
			started = true
			c.line = s.line
		}
		if started {
			c.add(part)
		}
		for errors.Is(err, bufio.ErrBufferFull) { // the rest of a long line
			part, err = s.r.ReadSlice('\n')
			whole = len(part) > 0 && part[len(part)-1] == '\n'
			if bytes.IndexByte(part, 0) >= 0 {
				return chunk{line: s.line, fault: faultBinary}, nil
			}
			if started {
				c.add(part)
			}
		}
		if whole {
			s.line++
		}
		if err == io.EOF && started {
			return c, nil
		}
		if err != nil {
			return chunk{}, err
		}
	}
}

// add appends text until the document is too big.
func (c *chunk) add(part []byte) {
	if c.fault != "" {
		return
	}
	if len(c.text)+len(part) > maxDocument {
		c.text, c.fault = nil, faultTooBig
		return
	}
	c.text = append(c.text, part...)
}

// marker returns the document marker that the line ahead begins with, if any.
func (s *splitter) marker() string {
	ahead, _ := s.r.Peek(4)
	if len(ahead) < 3 || len(ahead) == 4 && !isSpace(ahead[3]) {
		return ""
	}
	switch string(ahead[:3]) {
	case "---":
		return "---"
	case "...":
		return "..."
	}
	return ""
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

func (s *splitter) skipLine() {
	for {
		_, err := s.r.ReadSlice('\n')
		if err == nil {
			s.line++
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

// hasContent tells whether a line before a document's content begins it: it is
// neither blank nor a comment, directive or mere marker.
func hasContent(line []byte) bool {
	if len(line) > 0 && line[0] == '%' {
		return false
	}
	line = bytes.TrimSpace(line)
	if after, marked := bytes.CutPrefix(line, []byte("---")); marked && (len(after) == 0 || after[0] == ' ' || after[0] == '\t') {
		line = bytes.TrimSpace(after)
	} else if string(line) == "..." {
		return false
	}
	return len(line) > 0 && line[0] != '#'
}

// nextJSON reads one JSON value, or, where no object or list begins, all the rest.
func (s *splitter) nextJSON(buf []byte) (chunk, error) {
	c := chunk{text: buf}
	depth, started, nested := 0, false, false
	inString, escaped := false, false
	for {
		b, err := s.r.ReadByte()
		if err == io.EOF && started {
			return c, nil
		}
		if err != nil {
			return chunk{}, err
		}
		if !started {
			switch b {
			case '\n':
				s.line++
				continue
			case ' ', '\t', '\r':
				continue
			}
			started = true
			nested = b == '{' || b == '['
			c.line = s.line
		}
		switch {
		case b == 0:
			return chunk{line: s.line, fault: faultBinary}, nil
		case b == '\n':
			s.line++
		case escaped:
			escaped = false
		case inString:
			escaped = b == '\\'
			inString = b != '"'
		case b == '"':
			inString = true
		case b == '{' || b == '[':
			depth++
		case b == '}' || b == ']':
			depth--
		}
		c.addByte(b)
		if nested && depth == 0 {
			return c, nil
		}
	}
}

// addByte is add for one byte.
func (c *chunk) addByte(b byte) {
	if c.fault != "" {
		return
	}
	if len(c.text) == maxDocument {
		c.text, c.fault = nil, faultTooBig
		return
	}
	c.text = append(c.text, b)
}
