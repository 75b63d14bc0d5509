package top

import (
	"bytes"
	"fmt"
	"io"
	"strings"
)

// line is one line of the screen: printable ASCII, so that a byte is a column.
type line struct {
	text  string
	style string // an SGR sequence of ECMA-48; empty for none
}

const (
	bold     = "\x1b[1m"
	reversed = "\x1b[7m"
	plain    = "\x1b[m"
)

// screen knows what the terminal shows and sends what is different: over a slow line each byte counts.
type screen struct {
	to    io.Writer
	shown []line // nil: not known
}

// forget has the next draw send everything.
func (s *screen) forget() { s.shown = nil }

// draw shows lines, which are as many as the terminal has and not wider than it.
func (s *screen) draw(lines []line) error {
	var b bytes.Buffer
	if len(s.shown) != len(lines) {
		b.WriteString("\x1b[2J")
		s.shown = make([]line, len(lines))
	}
	for i, l := range lines {
		change(&b, i+1, s.shown[i], l)
	}
	copy(s.shown, lines)
	if b.Len() == 0 {
		return nil
	}
	if _, err := s.to.Write(b.Bytes()); err != nil {
		s.forget()
		return fmt.Errorf("write to the terminal: %w", err)
	}
	return nil
}

// change writes what makes a line out of another: the part that differs.
func change(b *bytes.Buffer, number int, was, is line) {
	if was == is {
		return
	}
	begin, end := 0, len(is.text)
	if was.style == is.style {
		for begin < end && begin < len(was.text) && was.text[begin] == is.text[begin] {
			begin++
		}
		for len(was.text) == len(is.text) && end > begin && was.text[end-1] == is.text[end-1] {
			end--
		}
	}
	fmt.Fprintf(b, "\x1b[%d;%dH", number, begin+1)
	if len(is.text) < len(was.text) || was.style != is.style {
		b.WriteString("\x1b[K") // before the text: behind the last column it would take that away
	}
	if begin == end {
		return
	}
	if is.style == "" {
		b.WriteString(is.text[begin:end])
		return
	}
	b.WriteString(is.style + is.text[begin:end] + plain)
}

// printable keeps what is not printable ASCII from the terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, text)
}
