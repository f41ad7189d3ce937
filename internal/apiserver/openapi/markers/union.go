package markers

import "reflect"

// unions are the sets of fields of a struct of which one is set, as the extension
// of schemas has them.
func (r *reader) unions(t reflect.Type) ([]any, error) {
	comment, fields, err := r.comments(t)
	if err != nil {
		return nil, err
	}
	var out []any
	whole := markersOf(comment)["union"] != nil
	discriminator, members := "", map[string]any{}
	for f := range t.Fields() {
		name, inlined := jsonName(f)
		of := fields[f.Name]
		if inlined {
			if !hidden(of) && f.Type.Kind() == reflect.Struct {
				below, err := r.unions(f.Type)
				if err != nil {
					return nil, err
				}
				out = append(out, below...)
			}
			continue
		}
		marks := markersOf(of)
		switch {
		case name == "":
		case marks["unionDiscriminator"] != nil:
			discriminator = name
		case whole && marks["unionDeprecated"] == nil, !whole && marks["unionDeprecated"] != nil:
			members[name] = f.Name
		}
	}
	if !whole && len(members) == 0 {
		return out, nil
	}
	one := map[string]any{"fields-to-discriminateBy": members}
	if discriminator != "" {
		one["discriminator"] = discriminator
	}
	return append(out, one), nil
}
