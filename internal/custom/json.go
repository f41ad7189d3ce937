package custom

import (
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/wire"
)

// AppendJSON appends the object as it is sent, with kind and apiVersion if they are set.
func (o *Object) AppendJSON(dst []byte) ([]byte, error) {
	return o.append(dst, o.APIVersion, o.Kind)
}

// MarshalJSON is the same for encoding/json.
func (o *Object) MarshalJSON() ([]byte, error) { return o.AppendJSON(nil) }

// AppendStored appends the object as the store has it, which is how upstream stores it: it says what it is.
func (o *Object) AppendStored(dst []byte) ([]byte, error) {
	apiVersion, kind := o.Type()
	return o.append(dst, apiVersion, kind)
}

func (o *Object) append(dst []byte, apiVersion, kind string) ([]byte, error) {
	dst = append(dst, '{')
	if apiVersion != "" {
		dst = append(wire.AppendString(append(dst, `"apiVersion":`...), apiVersion), ',')
	}
	if kind != "" {
		dst = append(wire.AppendString(append(dst, `"kind":`...), kind), ',')
	}
	dst = append(dst, `"metadata":`...)
	dst, err := wire.AppendJSON(dst, &o.ObjectMeta)
	if err != nil {
		return dst, err
	}
	at := len(dst)
	if o.body != "" {
		dst = append(dst, o.body...)
	} else {
		fields := o.Body()
		if dst, err = wire.AppendJSON(dst, &fields); err != nil {
			return dst, err
		}
	}
	if len(dst) == at+len("{}") {
		return append(dst[:at], '}'), nil
	}
	dst[at] = ','
	return dst, nil
}

// UnmarshalJSON reads an object as it is stored and sent: its body is kept as it stands.
func (o *Object) UnmarshalJSON(data []byte) error {
	var err error
	into := func(what any, value []byte) {
		if e := wire.DecodeJSON(value, what); e != nil && err == nil {
			err = e
		}
	}
	o.TypeMeta, o.ObjectMeta, o.normal = metav1.TypeMeta{}, metav1.ObjectMeta{}, ""
	body := make([]byte, 0, len(data))
	broken := wire.Members(data, func(name, value []byte) {
		switch string(name) {
		case "apiVersion":
			into(&o.APIVersion, value)
		case "kind":
			into(&o.Kind, value)
		case "metadata":
			into(&o.ObjectMeta, value)
		default:
			body = wire.AppendString(append(body, ','), string(name))
			body = append(append(body, ':'), value...)
		}
	})
	if broken != nil || err != nil {
		return errors.Join(broken, err)
	}
	o.body, o.tree = "{}", nil
	if len(body) > 0 {
		body[0] = '{'
		o.body = string(append(body, '}'))
	}
	o.settle()
	return nil
}

// settle takes over what the object says of its kind.
func (o *Object) settle() {
	gvk := o.GroupVersionKind()
	if gvk.Version != "" {
		o.at = gvk.Version
	}
	if o.of == nil {
		o.of = &family{gvk.Group, gvk.Kind}
	}
}

// DecodeStrict reads an object that a client sent, and returns what strict reading has against it, unless
// lenient: what is said twice, and what is unknown of the metadata.
func (o *Object) DecodeStrict(data []byte, lenient bool) (strict []error, err error) {
	var whole map[string]any
	if lenient {
		err = wire.DecodeJSON(data, &whole)
	} else {
		strict, err = wire.DecodeJSONStrict(data, &whole)
	}
	if err != nil {
		return nil, err
	}
	if whole == nil {
		return nil, errors.New("the document is no object")
	}
	if lenient {
		return nil, o.take(whole, nil)
	}
	return strict, o.take(whole, &strict)
}

// SetTree makes the object what an unstructured tree is, which it takes over.
func (o *Object) SetTree(whole map[string]any) error { return o.take(whole, nil) }

// take makes the object that a tree is. What is unknown of the metadata is added to strict, if there is such a list.
func (o *Object) take(whole map[string]any, strict *[]error) error {
	o.TypeMeta, o.ObjectMeta = metav1.TypeMeta{}, metav1.ObjectMeta{}
	for name, to := range map[string]*string{"apiVersion": &o.APIVersion, "kind": &o.Kind} {
		text, ok := whole[name].(string)
		if !ok && whole[name] != nil {
			return fmt.Errorf("json: cannot unmarshal %s into Go struct field TypeMeta.%s of type string", kindOf(whole[name]), name)
		}
		*to = text
	}
	if metadata := whole["metadata"]; metadata != nil {
		doc, err := wire.AppendJSON([]byte(`{"metadata":`), &metadata)
		if err != nil {
			return err
		}
		doc = append(doc, '}')
		var only struct {
			ObjectMeta metav1.ObjectMeta `json:"metadata"`
		}
		if strict == nil {
			err = wire.DecodeJSON(doc, &only)
		} else {
			var more []error
			more, err = wire.DecodeJSONStrict(doc, &only)
			*strict = append(*strict, more...)
		}
		if err != nil {
			return err
		}
		o.ObjectMeta = only.ObjectMeta
	}
	delete(whole, "apiVersion")
	delete(whole, "kind")
	delete(whole, "metadata")
	o.SetBody(whole)
	o.settle()
	return nil
}

// kindOf is what JSON calls a value.
func kindOf(v any) string {
	switch v.(type) {
	case bool:
		return "bool"
	case map[string]any:
		return "object"
	case []any:
		return "array"
	}
	return "number"
}
