package files

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	kjson "sigs.k8s.io/json"
)

// unmarshal decodes JSON as the API server does under strict field validation,
// and returns what is wrong with it, each with the path of its field.
func unmarshal(raw []byte, into any) []string {
	strict, err := kjson.UnmarshalStrict(raw, into)
	if err != nil {
		return []string{describe(raw, err)}
	}
	var wrong []string
	for _, err := range strict {
		wrong = append(wrong, err.Error())
	}
	return wrong
}

// describe says in which field of raw a decoding error is, and how to mend it.
func describe(raw []byte, err error) string {
	if isSyntax, offset := kjson.SyntaxErrorOffset(err); isSyntax {
		line := 1 + bytes.Count(raw[:min(int(offset), len(raw))], []byte{'\n'})
		return fmt.Sprintf("line %d: %v", line, err)
	}
	// Types that decode themselves give errors without a place, or with a wrong one: look for the value that they refuse.
	if at, ok := find(raw, func(v value) bool { return selfDecoding(v) != nil }); ok {
		return fmt.Sprintf("%s: Invalid value: %s: %v", at.path, at.text, selfDecoding(at))
	}
	var wrongType *json.UnmarshalTypeError
	if errors.As(err, &wrongType) {
		if at, ok := find(raw, func(v value) bool { return v.end >= wrongType.Offset }); ok {
			return fmt.Sprintf("%s: Invalid value: %s: must be %s", at.path, at.text, wanted(wrongType.Type, at.text))
		}
		return fmt.Sprintf("%s: a %s is not %s", wrongType.Field, wrongType.Value, wanted(wrongType.Type, ""))
	}
	return err.Error()
}

// selfDecoding returns why a field whose type decodes itself cannot hold v.
func selfDecoding(v value) error {
	name := v.path[strings.LastIndexByte(v.path, '.')+1:]
	switch {
	case name == "targetPort":
		if new(intstr.IntOrString).UnmarshalJSON([]byte(v.text)) != nil {
			return errors.New("must be a port number or a port's name")
		}
	case strings.HasSuffix(name, "Timestamp"), strings.HasSuffix(name, "Time"):
		if new(metav1.Time).UnmarshalJSON([]byte(v.text)) != nil {
			return errors.New("must be a time such as \"2026-01-31T12:00:00Z\"")
		}
	}
	return nil
}

// wanted says in words what a field of type t holds. For a string that was given
// as a bare number or truth value, it adds the usual remedy.
func wanted(t reflect.Type, given string) string {
	switch t.Kind() {
	case reflect.String:
		if given == "" || given[0] == '{' || given[0] == '[' {
			return "a string"
		}
		return "a string (put it in quotes)"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return fmt.Sprintf("an integer (%v)", t.Kind())
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "a list"
	case reflect.Map, reflect.Struct, reflect.Pointer:
		return "a mapping"
	}
	return t.String()
}

// value is one value in a JSON document.
type value struct {
	path string // as in spec.ports[0].name
	text string // as it is written; only the bracket of a list or mapping
	end  int64  // the offset behind text
}

// find returns the first value of a JSON document, in the order of their ends
// (a list or mapping counts by its opening bracket), for which match holds.
func find(raw []byte, match func(value) bool) (value, bool) {
	type level struct {
		path  string
		list  bool
		count int
		key   string
	}
	var stack []level
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	for {
		start := dec.InputOffset()
		token, err := dec.Token()
		if err != nil {
			return value{}, false
		}
		delim, isDelim := token.(json.Delim)
		if isDelim && (delim == '}' || delim == ']') {
			stack = stack[:len(stack)-1]
			continue
		}
		v := value{end: dec.InputOffset()}
		if n := len(stack); n > 0 {
			top := &stack[n-1]
			top.count++
			if top.list {
				v.path = top.path + "[" + strconv.Itoa(top.count-1) + "]"
			} else if top.count%2 == 1 {
				top.key = token.(string)
				continue
			} else {
				v.path = strings.TrimPrefix(top.path+"."+top.key, ".")
			}
		}
		v.text = strings.Trim(string(raw[start:v.end]), " \t\r\n,:")
		if match(v) {
			return v, true
		}
		if isDelim {
			stack = append(stack, level{path: v.path, list: delim == '['})
		}
	}
}
