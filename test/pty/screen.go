package pty

import (
	"bytes"
	"fmt"
	"strings"
)

// screen understands of ECMA-48 and xterm's own sequences what the programs under test use. Anything else is shown, so that tests see it.
type screen struct {
	width, height int
	main, other   [][]byte
	row, column   int
	pending       []byte // the begin of a sequence
	modes         map[string]bool
	written       int
}

func (s *screen) resize(width, height int) {
	s.width, s.height = width, height
	if s.modes == nil {
		s.modes = map[string]bool{}
	}
	fit := func(old [][]byte) [][]byte {
		cells := make([][]byte, height)
		for i := range cells {
			cells[i] = bytes.Repeat([]byte{' '}, width)
			if i < len(old) {
				copy(cells[i], old[i])
			}
		}
		return cells
	}
	s.main, s.other = fit(s.main), fit(s.other)
	s.row, s.column = min(s.row, height-1), min(s.column, width)
}

func (s *screen) cells() [][]byte {
	if s.modes["1049"] {
		return s.other
	}
	return s.main
}

func (s *screen) lines() (lines []string) {
	for _, l := range s.cells() {
		lines = append(lines, strings.TrimRight(string(l), " "))
	}
	return lines
}

func (s *screen) write(b []byte) {
	s.written += len(b)
	b = append(s.pending, b...)
	s.pending = nil
	for len(b) > 0 {
		if b[0] != '\x1b' {
			s.put(b[0])
			b = b[1:]
			continue
		}
		end := 2
		for end < len(b) && (b[end] < '@' || b[end] > '~') {
			end++
		}
		if end >= len(b) {
			s.pending = bytes.Clone(b)
			return
		}
		if b[1] != '[' || !s.sequence(string(b[2:end]), b[end]) {
			for _, c := range b[:end+1] {
				s.put(max(c, '!'))
			}
		}
		b = b[end+1:]
	}
}

func (s *screen) put(c byte) {
	switch c {
	case '\r':
		s.column = 0
	case '\n':
		if s.row++; s.row == s.height {
			s.row--
			copy(s.cells(), s.cells()[1:])
			s.cells()[s.height-1] = bytes.Repeat([]byte{' '}, s.width)
		}
	default:
		if s.column >= s.width && !s.modes["nowrap"] {
			s.put('\r')
			s.put('\n')
		}
		s.column = min(s.column, s.width-1)
		s.cells()[s.row][s.column] = c
		s.column++
	}
}

func (s *screen) sequence(parameters string, final byte) (known bool) {
	switch final {
	case 'H':
		s.row, s.column = 0, 0
		if parameters != "" {
			if _, err := fmt.Sscanf(parameters, "%d;%d", &s.row, &s.column); err != nil || s.row < 1 || s.column < 1 {
				return false
			}
			s.row, s.column = min(s.row, s.height)-1, min(s.column, s.width)-1
		}
	case 'J':
		for _, l := range s.cells() {
			copy(l, bytes.Repeat([]byte{' '}, s.width))
		}
	case 'K':
		for i := min(s.column, s.width-1); i < s.width; i++ { // xterm takes away the last column, too, when the cursor is behind it
			s.cells()[s.row][i] = ' '
		}
	case 'm':
	case 'h', 'l':
		on := final == 'h'
		switch parameters {
		case "?1049":
			if on && !s.modes["1049"] {
				for _, l := range s.other {
					copy(l, bytes.Repeat([]byte{' '}, s.width))
				}
			}
			s.modes["1049"] = on
		case "?25":
			s.modes["hidden"] = !on
		case "?7":
			s.modes["nowrap"] = !on
		default:
			return false
		}
	default:
		return false
	}
	return true
}
