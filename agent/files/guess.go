package files

import (
	"bytes"
	"regexp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// skim returns the kind of a YAML document that is not read, if it shows without
// decoding. The largest documents of a cluster, its CustomResourceDefinitions and
// ConfigMaps, would cost the most to decode. It returns "" if in doubt.
func skim(text []byte) string {
	kind, apiVersion := topLevel(text, "kind:"), topLevel(text, "apiVersion:")
	if kind == "" || kind[0] < 'A' || kind[0] > 'Z' || apiVersion == "" || strings.HasSuffix(kind, "List") || kindNamed(groupOf(apiVersion), kind) != nil {
		return ""
	}
	return ignored(apiVersion, kind)
}

// topLevel returns the value of a field of the outermost mapping, if exactly one
// line begins with it and the value is one plain word.
func topLevel(text []byte, field string) string {
	value := ""
	for at := 0; at >= 0 && at < len(text); {
		line := text[at:]
		if bytes.HasPrefix(line, []byte(field)) {
			line, _, _ = bytes.Cut(line[len(field):], []byte("\n"))
			word := strings.TrimSpace(string(line))
			if value != "" || word == "" || strings.Trim(word, wordBytes) != "" {
				return ""
			}
			value = word
		}
		next := bytes.Index(text[at:], []byte("\n"+field[:1]))
		if next < 0 {
			break
		}
		at += next + 1
	}
	return value
}

const wordBytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-/"

// ignored names a kind that is not read.
func ignored(apiVersion, kind string) string {
	if apiVersion == "" {
		return kind
	}
	return kind + " (" + apiVersion + ")"
}

// The lines that name an object in a document that is not valid YAML or JSON.
var (
	kindLine      = regexp.MustCompile(`(?m)^kind:[ \t]*["']?([A-Za-z]+)["']?[ \t\r]*(?:#.*)?$`)
	metadataBlock = regexp.MustCompile(`(?m)^metadata:[ \t\r]*\n((?:(?:[ \t].*|#.*|[ \t\r]*)\n)*)`)
	nameLine      = regexp.MustCompile(`(?m)^  name:[ \t]*["']?([a-z0-9.-]+)["']?[ \t\r]*(?:#.*)?$`)
	namespaceLine = regexp.MustCompile(`(?m)^  namespace:[ \t]*["']?([a-z0-9.-]+)["']?[ \t\r]*(?:#.*)?$`)
)

// guessKey returns the object that a broken document most likely was meant to
// describe, by the usual layout of YAML; the zero key if it does not show.
func guessKey(text []byte) key {
	text = append(bytes.Clone(text), '\n')
	first := func(re *regexp.Regexp, in []byte) string {
		if m := re.FindSubmatch(in); m != nil {
			return string(m[1])
		}
		return ""
	}
	metadata := []byte(first(metadataBlock, text))
	name := first(nameLine, metadata)
	if name == "" {
		return key{}
	}
	for i := range kinds {
		if k := &kinds[i]; string(k.name) == first(kindLine, text) {
			guess := key{k.name, "", name}
			if k.namespaced {
				guess.namespace = first(namespaceLine, metadata)
				if guess.namespace == "" {
					guess.namespace = metav1.NamespaceDefault
				}
			}
			return guess
		}
	}
	return key{}
}
