package files

import (
	"bytes"
	"strings"
)

// plainToJSON converts YAML as kubectl prints it and people mostly write it:
// block mappings and lists, with scalars on one line that are plainly a string, a small
// number, true, false or null, and flow lists and mappings of such scalars. It
// reports false for anything else, valid or not; the YAML library decides then.
// What it takes, it converts byte for byte as the library's way would: a fuzz test compares the two.
//
// It is here because the library needs about 25 times as long, which makes it the
// larger part of the time from start to rules, and leaves 60 bytes of garbage for each byte read.
func plainToJSON(text []byte) ([]byte, bool) {
	for _, c := range text {
		if c < ' ' && c != '\n' || c > '~' || c == '<' { // '<' might be a merge key
			return nil, false
		}
	}
	p := plain{rest: text, json: make([]byte, 0, len(text))}
	p.advance()
	if p.line == nil || p.indent != 0 || bytes.HasPrefix(p.line, []byte("-")) {
		return nil, false
	}
	if !p.mapping(0, 0) || p.line != nil {
		return nil, false
	}
	return p.json, true
}

// plain is the state of a conversion.
type plain struct {
	rest []byte // the text after line
	// line is the current line, without its indent, from its first character on; nil at the end.
	line   []byte
	indent int
	json   []byte
}

// maxPlainDepth bounds the nesting, and so the recursion.
const maxPlainDepth = 64

// advance goes to the next line that is neither blank nor a comment.
func (p *plain) advance() {
	for len(p.rest) > 0 {
		line := p.rest
		if end := bytes.IndexByte(p.rest, '\n'); end >= 0 {
			line, p.rest = p.rest[:end], p.rest[end+1:]
		} else {
			p.rest = nil
		}
		p.line = bytes.TrimLeft(line, " ")
		p.indent = len(line) - len(p.line)
		p.line = bytes.TrimRight(p.line, " ")
		if len(p.line) > 0 && p.line[0] != '#' {
			return
		}
	}
	p.line = nil
}

// isItem tells whether the current line begins an item of a list.
func (p *plain) isItem() bool { return bytes.HasPrefix(p.line, []byte("- ")) }

// mapping converts the block mapping whose first key is the current line's, at a column.
func (p *plain) mapping(column, depth int) bool {
	if depth > maxPlainDepth {
		return false
	}
	p.json = append(p.json, '{')
	for first := true; p.line != nil && p.indent == column && !p.isItem(); first = false {
		if !first {
			p.json = append(p.json, ',')
		}
		key, value, ok := cutKey(p.line)
		if !ok {
			return false
		}
		p.json = append(p.json, '"')
		p.json = append(p.json, key...)
		p.json = append(p.json, '"', ':')
		if len(value) > 0 {
			if !p.value(value) {
				return false
			}
			p.advance()
			if p.line != nil && p.indent > column {
				return false // the value goes on
			}
			continue
		}
		p.advance()
		switch {
		case p.line == nil || p.indent < column || p.indent == column && !p.isItem():
			p.json = append(p.json, "null"...)
		case p.isItem():
			ok = p.list(p.indent, depth+1)
		default:
			ok = p.mapping(p.indent, depth+1)
		}
		if !ok || p.line != nil && p.indent > column {
			return false
		}
	}
	p.json = append(p.json, '}')
	return true
}

// list converts the block list whose first item is the current line's, at a column.
func (p *plain) list(column, depth int) bool {
	if depth > maxPlainDepth {
		return false
	}
	p.json = append(p.json, '[')
	for first := true; p.line != nil && p.indent == column && p.isItem(); first = false {
		if !first {
			p.json = append(p.json, ',')
		}
		item := bytes.TrimLeft(p.line[2:], " ")
		if len(item) == 0 || item[0] == '-' || item[0] == '#' {
			return false
		}
		if _, _, isKey := cutKey(item); isKey {
			// A mapping that begins on the item's own line, at the column of its first key.
			p.indent += len(p.line) - len(item)
			p.line = item
			if !p.mapping(p.indent, depth+1) {
				return false
			}
		} else {
			if !p.value(item) {
				return false
			}
			p.advance()
		}
		if p.line != nil && p.indent > column {
			return false
		}
	}
	p.json = append(p.json, ']')
	return true
}

// maxKey is below the length from which on a name before a colon is no key any more (YAML 1.2.2, 7.4.2: 1024 characters).
const maxKey = 1000

// cutKey splits a line of a mapping into key and value.
func cutKey(line []byte) (key, value []byte, ok bool) {
	n := 0
	for n < len(line) && isNameByte(line[n]) {
		n++
	}
	if n == 0 || n > maxKey || n == len(line) || line[n] != ':' || !isLetter(line[0]) || isWord(line[:n]) {
		return nil, nil, false
	}
	if n+1 == len(line) {
		return line[:n], nil, true
	}
	if line[n+1] != ' ' {
		return nil, nil, false
	}
	return line[:n], bytes.TrimLeft(line[n+1:], " "), true
}

// value converts a value on one line: a scalar or a flow collection, and nothing after it.
func (p *plain) value(text []byte) bool {
	switch text[0] {
	case '[', '{':
		rest, ok := p.flow(text, 0)
		return ok && len(rest) == 0
	case '"', '\'':
		rest, ok := p.quoted(text)
		return ok && len(rest) == 0
	}
	return p.scalar(text, true)
}

// flow converts the flow collection, or scalar in one, that text begins with, and returns what follows.
func (p *plain) flow(text []byte, depth int) (rest []byte, ok bool) {
	if len(text) == 0 || depth > maxPlainDepth {
		return nil, false
	}
	switch text[0] {
	case '"', '\'':
		return p.quoted(text)
	case '[', '{':
	default:
		n := 0
		for n < len(text) && isNameByte(text[n]) {
			n++
		}
		return text[n:], n > 0 && p.scalar(text[:n], false)
	}
	isMapping, closing := text[0] == '{', byte(']')
	if isMapping {
		closing = '}'
	}
	p.json = append(p.json, text[0])
	text = bytes.TrimLeft(text[1:], " ")
	for first := true; len(text) > 0 && (text[0] != closing || !first); first = false {
		if isMapping {
			n := bytes.IndexByte(text, ':')
			if n <= 0 || n+1 >= len(text) || text[n+1] != ' ' {
				return nil, false
			}
			key, _, isKey := cutKey(text[:n+1])
			if !isKey {
				return nil, false
			}
			p.json = append(p.json, '"')
			p.json = append(p.json, key...)
			p.json = append(p.json, '"', ':')
			text = bytes.TrimLeft(text[n+1:], " ")
		}
		if text, ok = p.flow(text, depth+1); !ok {
			return nil, false
		}
		text = bytes.TrimLeft(text, " ")
		if len(text) < 2 || text[0] != ',' {
			break
		}
		p.json = append(p.json, ',')
		if text[1] != ' ' {
			return nil, false
		}
		text = bytes.TrimLeft(text[1:], " ")
	}
	if len(text) == 0 || text[0] != closing {
		return nil, false
	}
	p.json = append(p.json, closing)
	return text[1:], true
}

// quoted converts the quoted string that text begins with. One that needs escaping is not plain.
func (p *plain) quoted(text []byte) (rest []byte, ok bool) {
	end := bytes.IndexByte(text[1:], text[0])
	if end < 0 {
		return nil, false
	}
	content, rest := text[1:1+end], text[end+2:]
	if bytes.ContainsAny(content, `"\`) || len(rest) > 0 && rest[0] == text[0] {
		return nil, false
	}
	p.json = append(p.json, '"')
	p.json = append(p.json, content...)
	p.json = append(p.json, '"')
	return rest, true
}

// scalar converts an unquoted scalar. Only what can be nothing but a string, by YAML 1.1, is one here.
func (p *plain) scalar(s []byte, colons bool) bool {
	switch string(s) {
	case "true", "false", "null":
		p.json = append(p.json, s...)
		return true
	}
	for _, c := range s {
		if !isNameByte(c) && (c != ':' || !colons) {
			return false
		}
	}
	switch {
	case s[len(s)-1] == ':':
		return false // a mapping
	case isLetter(s[0]):
		if isWord(s) {
			return false
		}
	case s[0] < '0' || s[0] > '9':
		return false
	case isNumber(s):
		p.json = append(p.json, s...)
		return true
	case !isAddress(s) && !isUID(s):
		return false // might be a number of another form, or a time
	}
	p.json = append(p.json, '"')
	p.json = append(p.json, s...)
	p.json = append(p.json, '"')
	return true
}

// isNumber tells whether s is an integer that is not octal and that every integer type holds.
func isNumber(s []byte) bool {
	return len(s) <= 9 && (s[0] != '0' || len(s) == 1) && len(bytes.Trim(s, "0123456789")) == 0
}

// isAddress tells whether s, which begins with a digit, looks like an IP address or CIDR.
func isAddress(s []byte) bool {
	address, length, _ := bytes.Cut(s, []byte("/"))
	switch {
	case len(bytes.Trim(length, "0123456789")) > 0:
		return false
	case bytes.Count(address, []byte(".")) == 3:
		return len(bytes.Trim(address, "0123456789.")) == 0
	}
	return bytes.Count(address, []byte(":")) >= 2 && len(bytes.Trim(address, "0123456789abcdefABCDEF:")) == 0
}

// isUID tells whether s has the form of a UID (RFC 9562).
func isUID(s []byte) bool {
	return len(s) == 36 && s[8] == '-' && s[13] == '-' && s[18] == '-' && s[23] == '-'
}

// isNameByte tells whether c can stand in a name: of a field, label, object or host.
func isNameByte(c byte) bool {
	return isLetter(c) || c >= '0' && c <= '9' || c == '.' || c == '-' || c == '_' || c == '/'
}

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

// isWord tells whether YAML 1.1 knows a word for a truth value or null.
func isWord(s []byte) bool {
	if len(s) > 5 {
		return false
	}
	switch strings.ToLower(string(s)) {
	case "y", "n", "yes", "no", "on", "off", "true", "false", "null":
		return true
	}
	return false
}
