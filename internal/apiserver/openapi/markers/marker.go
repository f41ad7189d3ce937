package markers

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/kube-openapi/pkg/validation/spec"
)

// markersOf are the markers of a comment, all values of each: "+listType=set".
func markersOf(comment []string) map[string][]string {
	out := map[string][]string{}
	for _, line := range comment {
		if line, ok := strings.CutPrefix(strings.Trim(line, " "), "+"); ok {
			key, value, _ := strings.Cut(line, "=")
			out[key] = append(out[key], value)
		}
	}
	return out
}

// hidden reports that a comment keeps something out of schemas.
func hidden(comment []string) bool {
	return slices.Contains(markersOf(comment)["k8s:openapi-gen"], "false")
}

// extensions are the schemas' names of markers.
var extensions = map[string]string{
	"listMapKey": "x-kubernetes-list-map-keys", "listType": "x-kubernetes-list-type",
	"mapType": "x-kubernetes-map-type", "structType": "x-kubernetes-map-type",
	"patchMergeKey": "x-kubernetes-patch-merge-key", "patchStrategy": "x-kubernetes-patch-strategy",
	"validations": "x-kubernetes-validations",
}

// extend adds what the markers say of merging, and extensions that they name.
func extend(s *spec.Schema, comment []string) error {
	all := markersOf(comment)
	for _, value := range all["k8s:openapi-gen"] {
		if name, value, ok := strings.Cut(value, ":"); ok && strings.HasPrefix(name, "x-kubernetes-") {
			s.AddExtension(name, value)
		}
	}
	for _, marker := range slices.Sorted(maps.Keys(all)) {
		if strings.HasPrefix(marker, "k8s:validation:") {
			return fmt.Errorf("marker %s: there was none such when this was written", marker)
		}
		name, values := extensions[marker], all[marker]
		if name == "" {
			continue
		}
		if len(values) == 1 && marker != "listMapKey" {
			s.AddExtension(name, values[0])
			continue
		}
		list := make([]any, len(values))
		for i, v := range values {
			list[i] = v
		}
		s.AddExtension(name, list)
	}
	return nil
}

// isOptional reports whether a field need not be there: what its markers say, and
// without any whether its JSON tag leaves out what is empty.
func isOptional(comment []string, tag string) bool {
	all := markersOf(comment)
	if all["required"] != nil {
		return false
	}
	return all["optional"] != nil || omitsEmpty(tag)
}

func omitsEmpty(tag string) bool { return slices.Contains(strings.Split(tag, ",")[1:], "omitempty") }

var reference = regexp.MustCompile(`^ref\(([^"]+)\)$`)

// defaultOf is what a comment says that a field is without a value; nil: nothing.
func (s *source) defaultOf(comment []string) (any, error) {
	values := markersOf(comment)["default"]
	if len(values) == 0 || values[0] == "" {
		return nil, nil
	}
	if m := reference.FindStringSubmatch(values[0]); m != nil {
		text, ok := s.values[m[1]]
		if !ok {
			return nil, fmt.Errorf("default %s: no such constant", values[0])
		}
		return text, nil
	}
	var value any
	if err := json.Unmarshal([]byte(values[0]), &value); err != nil {
		return nil, fmt.Errorf("default %s: %w", values[0], err)
	}
	return value, nil
}

// description is a comment as text: one paragraph a line, lines that begin with a space
// as they are; without markers, notes of things to do, and what comes after "---".
func description(comment []string) string {
	var out []byte
	chop := func() {
		if len(out) > 0 {
			out = out[:len(out)-1]
		}
	}
	for _, line := range comment {
		if line == "---" {
			break
		}
		line = strings.TrimRight(line, " ")
		switch first := strings.TrimLeft(line, " "); {
		case line == "":
			chop()
			out = append(out, "\n\n"...)
		case strings.HasPrefix(first, "TODO"), strings.HasPrefix(first, "+"):
		case line[0] == ' ', line[0] == '\t':
			chop()
			out = append(out, "\n"+line+"\n"...)
		default:
			out = append(out, line+" "...)
		}
	}
	return strings.TrimSpace(string(out))
}
