package files

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"sluice/agent/source"
)

// decoded is what one document holds.
type decoded struct {
	objects []object
	// refused is why the document as a whole cannot be read; its objects are unknown
	// then, but for the one that its text seems to name.
	refused string
	named   key
	// ignored are the kinds in it that are not read.
	ignored []string
}

// object is one object of a document.
type object struct {
	key key
	// hash of its JSON text.
	hash uint64
	// object is trimmed; nil if it is refused.
	object metav1.Object
	findings
}

// header is what all objects have.
type header struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
	Items []json.RawMessage `json:"items"`
}

// decoder decodes documents. It may be used from several goroutines.
type decoder struct {
	seed maphash.Seed
}

// hash returns the hash of a text, in this process.
func (d *decoder) hash(text []byte) uint64 { return maphash.Bytes(d.seed, text) }

// decode decodes one document. It never fails: what is wrong is in the result.
func (d *decoder) decode(text []byte, isJSON bool) (doc decoded) {
	defer func() {
		// The YAML library has a history of panics on input made to break it.
		if p := recover(); p != nil {
			doc = decoded{refused: fmt.Sprintf("the document breaks the YAML decoder: %v", p)}
		}
	}()
	if other := skim(text); !isJSON && other != "" {
		return decoded{ignored: []string{other}}
	}
	raw, h, refused := toJSON(text, isJSON)
	if refused != "" {
		return decoded{refused: refused, named: guessKey(text)}
	}
	if raw == nil {
		return decoded{}
	}
	if listOf, ok := strings.CutSuffix(h.Kind, "List"); ok && (listOf == "" || kindNamed(groupOf(h.APIVersion), listOf) != nil) {
		d.decodeList(&doc, h, listOf)
	} else {
		d.decodeObject(&doc, raw, h, "")
	}
	return doc
}

// toJSON returns a document as JSON, with its header. Empty ones give nil.
func toJSON(text []byte, isJSON bool) (raw []byte, h header, refused string) {
	text = bytes.TrimSpace(text)
	if isJSON || bytes.HasPrefix(text, []byte("{")) {
		err := kjson.UnmarshalCaseSensitivePreserveInts(text, &h)
		isSyntax, _ := kjson.SyntaxErrorOffset(err)
		switch {
		case isSyntax && isJSON:
			return nil, h, describe(text, err)
		case !isSyntax:
			return text, h, describeHeader(text, err)
		}
		// YAML in flow style, which looks like JSON.
	}
	raw, err := yamlToJSON(text)
	if err != nil || raw == nil {
		if err == nil {
			return nil, h, ""
		}
		return nil, h, strings.TrimPrefix(err.Error(), "yaml: ")
	}
	return raw, h, describeHeader(raw, kjson.UnmarshalCaseSensitivePreserveInts(raw, &h))
}

// describeHeader describes an error in decoding a header. An error within the
// metadata is left to the decoding of the object, which knows its name by then.
func describeHeader(raw []byte, err error) string {
	var wrongType *json.UnmarshalTypeError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &wrongType) && strings.HasPrefix(wrongType.Field, "metadata"):
		return ""
	case errors.As(err, &wrongType) && wrongType.Field == "":
		return errNotMapping.Error()
	}
	return describe(raw, err)
}

// decodeList decodes the items of a list, each as a document of its own would be.
func (d *decoder) decodeList(doc *decoded, list header, listOf string) {
	for i, raw := range list.Items {
		path := fmt.Sprintf("items[%d]: ", i)
		var h header
		if why := describeHeader(raw, kjson.UnmarshalCaseSensitivePreserveInts(raw, &h)); why != "" {
			doc.objects = append(doc.objects, object{findings: findings{refused: []string{path + why}}})
			continue
		}
		// In a list of one kind, as the API serves it, the items do not repeat it.
		if listOf != "" && h.Kind == "" {
			h.APIVersion, h.Kind = list.APIVersion, listOf
		}
		d.decodeObject(doc, raw, h, path)
	}
}

// decodeObject decodes one object into doc. Path is that of the object in its document.
func (d *decoder) decodeObject(doc *decoded, raw []byte, h header, path string) {
	o := object{hash: d.hash(raw)}
	refuse := func(reason string) {
		o.refused = []string{path + reason}
		doc.objects = append(doc.objects, o)
	}
	if h.Kind == "" {
		refuse("kind: Required value: say what the object is, for example Service")
		return
	}
	k := kindNamed(groupOf(h.APIVersion), h.Kind)
	if h.APIVersion == "" {
		// Without a group only the kinds that are read are taken for what their name says.
		for i := range kinds {
			if string(kinds[i].name) == h.Kind {
				refuse(fmt.Sprintf("apiVersion: Required value: of a %s it is %s", h.Kind, kinds[i].apiVersion()))
				return
			}
		}
	}
	if k == nil {
		doc.ignored = append(doc.ignored, ignored(h.APIVersion, h.Kind))
		return
	}
	if h.Metadata.Name != "" {
		o.key = key{k.name, "", h.Metadata.Name}
		if k.namespaced {
			o.key.namespace = h.Metadata.Namespace
			if o.key.namespace == "" {
				o.key.namespace = metav1.NamespaceDefault
			}
		}
	}
	if h.APIVersion != k.apiVersion() {
		refuse(fmt.Sprintf("apiVersion: Unsupported value: %q: supported values: %q", h.APIVersion, k.apiVersion()))
		return
	}
	obj, f := k.decode(raw)
	if k.namespaced && obj.GetNamespace() == "" {
		obj.SetNamespace(metav1.NamespaceDefault)
	}
	o.findings = f.under(path)
	if len(f.refused) == 0 {
		source.Trim(obj)
		o.object = obj
	}
	doc.objects = append(doc.objects, o)
}

// under puts the path of an object before its findings.
func (f findings) under(path string) findings {
	for _, list := range [][]string{f.refused, f.unserved, f.notes} {
		for i := range list {
			list[i] = path + list[i]
		}
	}
	return f
}
