package source

import "strings"

// plain replaces what is not printable ASCII. Every text that is read is a name, an address or a word, which has nothing else where
// an API server looked at it. With anything else one could begin a row of a table or steer the terminal that shows it, and the kernel
// ends a comment at a zero byte, so that it would never have the one that is wanted.
func plain[S ~string](text S) S {
	for i := range len(text) {
		if !isPlain(rune(text[i])) {
			return S(strings.Map(func(r rune) rune {
				if isPlain(r) {
					return r
				}
				return '?'
			}, string(text)))
		}
	}
	return text
}

func isPlain(r rune) bool { return r >= ' ' && r <= '~' }

// plainAll does so with each of a list, in place.
func plainAll[S ~string](list []S) []S {
	for i, text := range list {
		list[i] = plain(text)
	}
	return list
}

// plainAt does so with what is perhaps there.
func plainAt[S ~string](text *S) *S {
	if text != nil {
		*text = plain(*text)
	}
	return text
}
