package wire

import (
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// DecodeJSON reads a JSON document by upstream's rules: names are case
// sensitive, whole numbers stay whole.
func DecodeJSON(data []byte, into any) error {
	if readJSON(data, into) {
		return nil
	}
	return kjson.UnmarshalCaseSensitivePreserveInts(data, into)
}

// DecodeJSONStrict does the same and also returns what is unknown or duplicate.
func DecodeJSONStrict(data []byte, into any) (strict []error, err error) {
	if readJSON(data, into) {
		return nil, nil
	}
	return kjson.UnmarshalStrict(data, into)
}

// YAMLToJSON converts a YAML document; duplicate says that strict reading would
// have refused it, and why.
func YAMLToJSON(data []byte, strict bool) (doc []byte, duplicate, err error) {
	doc, err = yaml.YAMLToJSON(data)
	if err == nil && strict {
		_, duplicate = yaml.YAMLToJSONStrict(data)
	}
	return doc, duplicate, err
}

// JSONToYAML converts a JSON document.
func JSONToYAML(doc []byte) ([]byte, error) { return yaml.JSONToYAML(doc) }
