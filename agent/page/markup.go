package page

import (
	"bytes"
	"fmt"
	"html"
	"strings"
	"unicode"
)

// markup collects HTML. The standard library's templates would make the program larger by a third: it could then call
// every exported method of every type by name, and the linker would have to keep them.
type markup struct{ bytes.Buffer }

// trusted is HTML that stays as it is.
type trusted string

// add writes HTML with the arguments in it, which are escaped: text between tags or in quoted attributes. The format has to be a constant.
func (m *markup) add(format string, args ...any) {
	for i, a := range args {
		switch a := a.(type) {
		case trusted, int:
		case string:
			args[i] = escape(a)
		default:
			args[i] = escape(fmt.Sprint(a))
		}
	}
	fmt.Fprintf(m, format, args...)
}

// escape makes text of what may be anything: messages hold what others wrote.
func escape(s string) string {
	return html.EscapeString(strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case unicode.IsPrint(r): // other spaces and marks that turn the direction of writing are not
			return r
		}
		return unicode.ReplacementChar
	}, s))
}
