package core

import (
	"bytes"
	"maps"

	corev1 "k8s.io/api/core/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"github.com/kemudi/kemudi/internal/resource"
)

// ConfigMaps is configuration that pods consume.
var ConfigMaps = resource.Define(resource.Spec[*corev1.ConfigMap]{
	Names:    resource.Names{Version: "v1", Kind: "ConfigMap", Plural: "configmaps", Short: []string{"cm"}, Namespaced: true},
	Validate: validateConfigMap,
	Columns: []resource.Column[*corev1.ConfigMap]{{
		Name: "Data", Description: corev1.ConfigMap{}.SwaggerDoc()["data"],
		Value: func(c *corev1.ConfigMap) any { return int64(len(c.Data) + len(c.BinaryData)) },
	}},
})

func validateConfigMap(c, old *corev1.ConfigMap, errs *resource.Errors) {
	if old != nil && old.Immutable != nil && *old.Immutable {
		const detail = "field is immutable when `immutable` is set"
		if c.Immutable == nil || !*c.Immutable {
			errs.Forbidden("immutable", detail)
		}
		if !maps.Equal(c.Data, old.Data) {
			errs.Forbidden("data", detail)
		}
		if !maps.EqualFunc(c.BinaryData, old.BinaryData, bytes.Equal) {
			errs.Forbidden("binaryData", detail)
		}
	}
	size := 0
	for key, value := range c.Data {
		checkDataKey(errs.At("data[%s]", key), key)
		if _, ok := c.BinaryData[key]; ok {
			errs.At("data[%s]", key).Invalid("", key, "duplicate of key present in binaryData")
		}
		size += len(value)
	}
	for key, value := range c.BinaryData {
		checkDataKey(errs.At("binaryData[%s]", key), key)
		size += len(value)
	}
	if size > corev1.MaxSecretSize {
		errs.TooLong("[]", corev1.MaxSecretSize)
	}
}

// checkDataKey accepts keys of config maps and secrets: they become file names.
func checkDataKey(errs *resource.Errors, key string) {
	for _, msg := range utilvalidation.IsConfigMapKey(key) {
		errs.Invalid("", key, msg)
	}
}
