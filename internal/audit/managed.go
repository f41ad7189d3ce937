package audit

import "encoding/json"

// shown is a document as the policy wants it shown: with or without who manages which
// fields. One that is no object stays as it is.
func (r *Request) shown(doc []byte) []byte {
	if !r.rule.omitManagedFields {
		return doc
	}
	if without, ok := withoutManagedFields(doc); ok {
		return without
	}
	return doc
}

// withoutManagedFields takes the managed fields out of an object, and out of those in a list or a
// table; ok is false if there is nothing to be taken out.
func withoutManagedFields(doc []byte) (out []byte, ok bool) {
	var obj map[string]json.RawMessage
	if json.Unmarshal(doc, &obj) != nil || obj == nil {
		return nil, false
	}
	changed := replace(obj, "metadata", func(meta []byte) ([]byte, bool) {
		var fields map[string]json.RawMessage
		if json.Unmarshal(meta, &fields) != nil || fields["managedFields"] == nil {
			return nil, false
		}
		delete(fields, "managedFields")
		return marshal(fields)
	})
	changed = replace(obj, "items", func(items []byte) ([]byte, bool) { return each(items, withoutManagedFields) }) || changed
	changed = replace(obj, "rows", func(rows []byte) ([]byte, bool) {
		return each(rows, func(row []byte) ([]byte, bool) {
			var fields map[string]json.RawMessage
			if json.Unmarshal(row, &fields) != nil || !replace(fields, "object", withoutManagedFields) {
				return nil, false
			}
			return marshal(fields)
		})
	}) || changed
	if !changed {
		return nil, false
	}
	return marshal(obj)
}

// replace changes a field, if there is anything to change.
func replace(obj map[string]json.RawMessage, name string, change func([]byte) ([]byte, bool)) (changed bool) {
	if obj[name] == nil {
		return false
	}
	out, changed := change(obj[name])
	if changed {
		obj[name] = out
	}
	return changed
}

// each changes those elements of a list that there is anything to change of.
func each(list []byte, change func([]byte) ([]byte, bool)) (out []byte, changed bool) {
	var elements []json.RawMessage
	if json.Unmarshal(list, &elements) != nil {
		return nil, false
	}
	for i := range elements {
		if out, ok := change(elements[i]); ok {
			elements[i], changed = out, true
		}
	}
	if !changed {
		return nil, false
	}
	return marshal(elements)
}

func marshal(v any) ([]byte, bool) {
	out, err := json.Marshal(v)
	return out, err == nil
}
