package files

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"

	yamlv2 "go.yaml.in/yaml/v2"
	"sigs.k8s.io/yaml"
)

// yamlToJSON converts one YAML document to JSON. A document that is empty gives nil.
func yamlToJSON(text []byte) ([]byte, error) {
	if json, ok := plainToJSON(text); ok {
		return json, nil
	}
	return libraryToJSON(text)
}

// libraryToJSON converts by the YAML library. It gives what
// sigs.k8s.io/yaml.YAMLToJSON gives, in a quarter less time: the mappings are
// decoded to ordered lists and written out directly, instead of being copied to
// maps that encoding/json sorts. Duplicate keys are kept, so that the strict JSON
// decoder can name them by their path.
func libraryToJSON(text []byte) ([]byte, error) {
	if countValues(text) > maxValues {
		return nil, errTooManyValues
	}
	if bytes.Contains(text, []byte("<<")) {
		// The library loses merge keys when it decodes to ordered lists.
		return yaml.YAMLToJSONStrict(text)
	}
	var doc yamlv2.MapSlice
	if err := yamlv2.Unmarshal(text, &doc); err != nil {
		var wrongType *yamlv2.TypeError
		if errors.As(err, &wrongType) {
			return nil, errNotMapping
		}
		return nil, err
	}
	if doc == nil {
		return nil, nil
	}
	return appendJSON(make([]byte, 0, len(text)), doc)
}

// maxValues bounds what the YAML library takes, some 300 bytes for each value of a document,
// though each may have but two characters. What kubectl prints stays below it up to maxDocument.
const maxValues = 1 << 18

var errTooManyValues = errors.New("the document has more than 262144 values, the most that are read: split it, for example into one object a document, or write it as JSON")

// countValues counts, roughly, the keys, values and items of a YAML document by the characters that separate them.
func countValues(text []byte) (n int) {
	for i, c := range text {
		switch c {
		case '\n', ',', '[', '{', '?':
			n++
		case ':', '-':
			if i+1 < len(text) && (text[i+1] == ' ' || text[i+1] == '\n') {
				n++
			}
		}
	}
	return n
}

var errNotMapping = errors.New("the document is not a mapping: an object with apiVersion, kind and metadata is wanted")

// appendJSON appends v, as the YAML library decodes into an interface, as JSON.
func appendJSON(b []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case nil:
		return append(b, "null"...), nil
	case string:
		return appendString(b, v)
	case bool:
		return strconv.AppendBool(b, v), nil
	case int:
		return strconv.AppendInt(b, int64(v), 10), nil
	case int64:
		return strconv.AppendInt(b, v, 10), nil
	case uint64:
		return strconv.AppendUint(b, v, 10), nil
	case float64:
		if math.IsInf(v, 0) || math.IsNaN(v) {
			return nil, fmt.Errorf("the number %v has no place in a Kubernetes object", v)
		}
		return strconv.AppendFloat(b, v, 'g', -1, 64), nil
	case yamlv2.MapSlice:
		return appendMapping(b, v)
	case []any:
		b = append(b, '[')
		var err error
		for i := range v {
			if i > 0 {
				b = append(b, ',')
			}
			if b, err = appendJSON(b, v[i]); err != nil {
				return nil, err
			}
		}
		return append(b, ']'), nil
	}
	return nil, fmt.Errorf("a value of the YAML type %T has no place in a Kubernetes object", v)
}

func appendMapping(b []byte, m yamlv2.MapSlice) ([]byte, error) {
	b = append(b, '{')
	for i, item := range m {
		if i > 0 {
			b = append(b, ',')
		}
		var key string
		switch k := item.Key.(type) {
		case string:
			key = k
		case bool, int, int64, uint64, float64:
			key = fmt.Sprint(k)
		default:
			return nil, fmt.Errorf("the key %v of a mapping is not a string", k)
		}
		var err error
		if b, err = appendString(b, key); err != nil {
			return nil, err
		}
		b = append(b, ':')
		if b, err = appendJSON(b, item.Value); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

// appendString appends s as a JSON string. Nearly all strings of a manifest need no escaping.
func appendString(b []byte, s string) ([]byte, error) {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			quoted, err := json.Marshal(s)
			return append(b, quoted...), err
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"'), nil
}
