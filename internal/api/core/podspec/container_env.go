package podspec

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"github.com/kemudi/kemudi/internal/api/core/check"
	"github.com/kemudi/kemudi/internal/resource"
)

// validateEnv checks the environment variables of a container. volumes are those
// that the pod has.
func validateEnv(errs *resource.Errors, env []corev1.EnvVar, volumes map[string]*corev1.Volume) {
	for i := range env {
		at := errs.At("env[%d]", i)
		if env[i].Name == "" {
			at.Required("name", "")
		} else {
			for _, msg := range utilvalidation.IsRelaxedEnvVarName(env[i].Name) {
				at.Invalid("name", env[i].Name, msg)
			}
		}
		if env[i].ValueFrom != nil {
			validateValueFrom(at.At("valueFrom"), &env[i], volumes)
		}
	}
}

// envFieldPaths are the fields of a pod that a variable may hold, besides single
// labels and annotations.
var envFieldPaths = []string{
	"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
	"status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
}

func validateValueFrom(errs *resource.Errors, v *corev1.EnvVar, volumes map[string]*corev1.Volume) {
	sources := 0
	if ref := v.ValueFrom.FieldRef; ref != nil {
		sources++
		validateFieldRef(errs.At("fieldRef"), ref, envFieldPaths)
	}
	if ref := v.ValueFrom.ResourceFieldRef; ref != nil {
		sources++
		validateResourceFieldRef(errs.At("resourceFieldRef"), ref)
	}
	if ref := v.ValueFrom.ConfigMapKeyRef; ref != nil {
		sources++
		validateKeyRef(errs.At("configMapKeyRef"), ref.Name, ref.Key)
	}
	if ref := v.ValueFrom.SecretKeyRef; ref != nil {
		sources++
		validateKeyRef(errs.At("secretKeyRef"), ref.Name, ref.Key)
	}
	if ref := v.ValueFrom.FileKeyRef; ref != nil {
		sources++
		validateFileKeyRef(errs.At("fileKeyRef"), ref, volumes)
	}
	switch {
	case sources == 0:
		errs.Invalid("", "", "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`")
	case v.Value != "":
		errs.Invalid("", "", "may not be specified when `value` is not empty")
	case sources > 1:
		errs.Invalid("", "", "may not have more than one field specified at a time")
	}
}

// validateKeyRef checks a reference to a key of a config map or secret.
func validateKeyRef(errs *resource.Errors, name, key string) {
	check.DNSSubdomain(errs, "name", name)
	if key == "" {
		errs.Required("key", "")
		return
	}
	for _, msg := range utilvalidation.IsConfigMapKey(key) {
		errs.Invalid("key", key, msg)
	}
}

// validateFileKeyRef checks a reference to a variable in a file that another
// container wrote; it must be in an emptyDir of the pod.
func validateFileKeyRef(errs *resource.Errors, ref *corev1.FileKeySelector, volumes map[string]*corev1.Volume) {
	switch volume := volumes[ref.VolumeName]; {
	case ref.VolumeName == "":
		errs.Required("volumeName", "")
	case volume == nil:
		errs.NotFound("volumeName", ref.VolumeName)
	case volume.EmptyDir == nil:
		errs.Invalid("volumeName", ref.VolumeName, "referenced volume must be of type emptyDir")
	}
	if ref.Path == "" {
		errs.Required("path", "")
	} else {
		check.LocalPath(errs, "path", ref.Path)
	}
	if ref.Key == "" {
		errs.Required("key", "")
		return
	}
	for _, msg := range utilvalidation.IsRelaxedEnvVarName(ref.Key) {
		errs.Invalid("key", ref.Key, msg)
	}
	if len(ref.Key) > 128 {
		errs.TooLong("key", 128)
	}
}

func validateEnvFrom(errs *resource.Errors, from []corev1.EnvFromSource) {
	for i := range from {
		at, sources := errs.At("envFrom[%d]", i), 0
		if from[i].Prefix != "" {
			for _, msg := range utilvalidation.IsRelaxedEnvVarName(from[i].Prefix) {
				at.Invalid("prefix", from[i].Prefix, msg)
			}
		}
		if ref := from[i].ConfigMapRef; ref != nil {
			sources++
			validateEnvObject(at.At("configMapRef"), ref.Name)
		}
		if ref := from[i].SecretRef; ref != nil {
			sources++
			validateEnvObject(at.At("secretRef"), ref.Name)
		}
		switch {
		case sources == 0:
			errs.Invalid("envFrom", "", "must specify one of: `configMapRef` or `secretRef`")
		case sources > 1:
			errs.Invalid("envFrom", "", "may not have more than one field specified at a time")
		}
	}
}

func validateEnvObject(errs *resource.Errors, name string) {
	if name == "" {
		errs.Required("name", "")
		return
	}
	for _, msg := range resource.DNS1123Subdomain(name, true) {
		errs.Invalid("name", name, msg)
	}
}

// validateFieldRef checks a reference to a field of the pod: one of allowed, or
// a single label or annotation.
func validateFieldRef(errs *resource.Errors, ref *corev1.ObjectFieldSelector, allowed []string) {
	if ref.APIVersion == "" {
		errs.Required("apiVersion", "")
		return
	}
	if ref.FieldPath == "" {
		errs.Required("fieldPath", "")
		return
	}
	if ref.APIVersion != "v1" {
		errs.Invalid("fieldPath", ref.FieldPath, fmt.Sprintf("error converting fieldPath: unsupported pod version: %s", ref.APIVersion))
		return
	}
	if path, key, ok := cutSubscript(ref.FieldPath); ok {
		switch path {
		case "metadata.annotations":
			check.QualifiedName(errs, "", strings.ToLower(key))
		case "metadata.labels":
			check.QualifiedName(errs, "", key)
		default:
			errs.Invalid("fieldPath", ref.FieldPath, fmt.Sprintf("error converting fieldPath: field label does not support subscript: %s", ref.FieldPath))
		}
		return
	}
	path := ref.FieldPath
	if path == "spec.host" { // the name of the field in the first release
		path = "spec.nodeName"
	}
	switch {
	case slices.Contains(allowed, path):
	case slices.Contains(podFieldPaths, path):
		resource.NotSupported(errs, "fieldPath", path, allowed...)
	default:
		errs.Invalid("fieldPath", ref.FieldPath, fmt.Sprintf("error converting fieldPath: field label not supported: %s", ref.FieldPath))
	}
}

// podFieldPaths are the fields that can be referred to from somewhere.
var podFieldPaths = []string{
	"metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid",
	"spec.nodeName", "spec.restartPolicy", "spec.serviceAccountName", "spec.schedulerName",
	"status.phase", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
}

// cutSubscript splits "metadata.labels['app']" into the path and the key.
func cutSubscript(fieldPath string) (path, key string, ok bool) {
	rest, ok := strings.CutSuffix(fieldPath, "']")
	if !ok {
		return fieldPath, "", false
	}
	path, key, ok = strings.Cut(rest, "['")
	if !ok || path == "" {
		return fieldPath, "", false
	}
	return path, key, true
}

// containerResourcePaths are the resources of a container that can be shown to it.
var containerResourcePaths = []string{
	"limits.cpu", "limits.ephemeral-storage", "limits.memory",
	"requests.cpu", "requests.ephemeral-storage", "requests.memory",
}

func validateResourceFieldRef(errs *resource.Errors, ref *corev1.ResourceFieldSelector) {
	switch {
	case ref.Resource == "":
		errs.Required("resource", "")
	case slices.Contains(containerResourcePaths, ref.Resource), showsHugePages(ref.Resource):
	default:
		resource.NotSupported(errs, "resource", ref.Resource, containerResourcePaths...)
	}
	validateDivisor(errs, ref)
}

func showsHugePages(path string) bool {
	return strings.HasPrefix(path, "requests.hugepages-") || strings.HasPrefix(path, "limits.hugepages-")
}

var byteDivisors = []string{"1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"}

// validateDivisor checks the unit that a resource is shown in.
func validateDivisor(errs *resource.Errors, ref *corev1.ResourceFieldSelector) {
	if ref.Divisor.IsZero() {
		return
	}
	what := ""
	switch _, name, _ := strings.Cut(ref.Resource, "."); {
	case name == "cpu":
		if d := ref.Divisor.String(); d != "1m" && d != "1" {
			errs.Invalid("divisor", ref.Resource, "only divisor's values 1m and 1 are supported with the cpu resource")
		}
		return
	case name == "memory":
		what = "memory"
	case name == "ephemeral-storage":
		what = "local ephemeral storage"
	case showsHugePages(ref.Resource):
		what = "hugepages"
	default:
		return
	}
	if !slices.Contains(byteDivisors, ref.Divisor.String()) {
		errs.Invalid("divisor", ref.Resource,
			"only divisor's values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the "+what+" resource")
	}
}
