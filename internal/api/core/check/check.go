package check

import (
	"path"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"github.com/kemudi/kemudi/internal/resource"
)

// DNSLabel accepts a DNS label: no dots, 63 characters.
func DNSLabel(errs *resource.Errors, at, value string) {
	for _, msg := range utilvalidation.IsDNS1123Label(value) {
		errs.Invalid(at, value, msg)
	}
}

// DNSSubdomain accepts a DNS subdomain, as most names of objects are.
func DNSSubdomain(errs *resource.Errors, at, value string) {
	for _, msg := range utilvalidation.IsDNS1123Subdomain(value) {
		errs.Invalid(at, value, msg)
	}
}

// QualifiedName accepts a name with an optional domain: "example.com/name".
func QualifiedName(errs *resource.Errors, at, value string) {
	for _, msg := range utilvalidation.IsQualifiedName(value) {
		errs.Invalid(at, value, msg)
	}
}

// Port accepts the number of a port.
func Port(errs *resource.Errors, at string, port int32) {
	for _, msg := range utilvalidation.IsValidPortNum(int(port)) {
		errs.Invalid(at, port, msg)
	}
}

// PortOrName accepts the number or the name of a port.
func PortOrName(errs *resource.Errors, at string, port intstr.IntOrString) {
	if port.Type == intstr.Int {
		Port(errs, at, port.IntVal)
		return
	}
	for _, msg := range utilvalidation.IsValidPortName(port.StrVal) {
		errs.Invalid(at, port.StrVal, msg)
	}
}

// IP accepts an IP address, or one that was there before the rules became
// as strict as they are.
func IP(errs *resource.Errors, at, ip string, before ...string) {
	if slices.Contains(before, ip) {
		return
	}
	errs.Add(utilvalidation.IsValidIPForLegacyField(errs.Path(at), ip, true, nil)...)
}

// CIDR accepts an address range, or one that was there before.
func CIDR(errs *resource.Errors, at, cidr string, before ...string) {
	if slices.Contains(before, cidr) {
		return
	}
	errs.Add(utilvalidation.IsValidCIDRForLegacyField(errs.Path(at), cidr, true, nil)...)
}

// Labels accepts labels.
func Labels(errs *resource.Errors, at string, labels map[string]string) {
	if len(labels) > 0 {
		errs.Add(metavalidation.ValidateLabels(labels, errs.Path(at))...)
	}
}

// LabelSelector accepts a selector, or none.
func LabelSelector(errs *resource.Errors, at string, s *metav1.LabelSelector) {
	if s != nil {
		errs.Add(metavalidation.ValidateLabelSelector(s, metavalidation.LabelSelectorValidationOptions{}, errs.Path(at))...)
	}
}

// OneOf accepts one of the allowed values, which the error lists in the order given.
func OneOf[S ~string](errs *resource.Errors, at string, value S, allowed ...S) {
	if !slices.Contains(allowed, value) {
		resource.NotSupported(errs, at, value, allowed...)
	}
}

// RequiredOneOf is OneOf for a field that must be given.
func RequiredOneOf[S ~string](errs *resource.Errors, at string, value S, allowed ...S) {
	if value == "" {
		errs.Required(at, "")
		return
	}
	OneOf(errs, at, value, allowed...)
}

// Mode accepts permission bits of a file.
func Mode(errs *resource.Errors, at string, mode *int32) {
	if mode != nil && (*mode < 0 || *mode > 0o777) {
		errs.Invalid(at, *mode, "must be a number between 0 and 0777 (octal), both inclusive")
	}
}

// NoBacksteps refuses paths that lead out of where they start.
func NoBacksteps(errs *resource.Errors, at, target string) bool {
	if HasBacksteps(target) {
		errs.Invalid(at, target, "must not contain '..'")
		return false
	}
	return true
}

// HasBacksteps reports whether a path has ".." in it.
func HasBacksteps(target string) bool {
	return strings.Contains(target, "..") && slices.Contains(strings.Split(target, "/"), "..")
}

// DescendingPath accepts relative paths that stay below where they start.
func DescendingPath(errs *resource.Errors, at, target string) {
	if path.IsAbs(target) {
		errs.Invalid(at, target, "must be a relative path")
	}
	NoBacksteps(errs, at, target)
}

// LocalPath is DescendingPath for files of a volume, where names that
// start with two dots are the node's own.
func LocalPath(errs *resource.Errors, at, target string) {
	DescendingPath(errs, at, target)
	if strings.HasPrefix(target, "..") && !strings.HasPrefix(target, "../") {
		errs.Invalid(at, target, "must not start with '..'")
	}
}

// Required refuses an empty value.
func Required(errs *resource.Errors, at, value string) {
	if value == "" {
		errs.Required(at, "")
	}
}

// A Choice checks that exactly one of several fields is set.
type Choice struct {
	Errs *resource.Errors
	Many string // what to say of the second and further ones
	Any  bool   // one has been set
}

// Take reports whether the field, which is set, is the first one that is.
func (c *Choice) Take(at string) bool {
	if c.Any {
		c.Errs.Forbidden(at, c.Many)
		return false
	}
	c.Any = true
	return true
}

// Annotations accepts annotations, also by their size.
func Annotations(errs *resource.Errors, at string, annotations map[string]string) {
	if len(annotations) > 0 {
		errs.Add(validation.ValidateAnnotations(annotations, errs.Path(at))...)
	}
}

// Unset refuses every field of a struct that is set, but those named (by
// their Go names): fields that are added to the type later are refused too.
func Unset(errs *resource.Errors, value any, detail string, allowed ...string) {
	v := reflect.ValueOf(value)
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if slices.Contains(allowed, f.Name) || v.Field(i).IsZero() {
			continue
		}
		errs.Forbidden(strings.ToLower(f.Name[:1])+f.Name[1:], detail)
	}
}

// TemplateMeta accepts what a template may say of the metadata of what is made from it:
// labels and annotations.
func TemplateMeta(errs *resource.Errors, meta *metav1.ObjectMeta) {
	Annotations(errs, "annotations", meta.Annotations)
	Labels(errs, "labels", meta.Labels)
	Unset(errs, *meta, "cannot be set", "Annotations", "Labels")
}

// Protocol accepts a transport protocol, at the path "protocol".
func Protocol(errs *resource.Errors, protocol corev1.Protocol) {
	RequiredOneOf(errs, "protocol", protocol, corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)
}

// TaintEffect accepts what a taint does, at the path "effect".
func TaintEffect(errs *resource.Errors, effect corev1.TaintEffect) {
	OneOf(errs, "effect", effect, corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)
}

// LabelValue accepts the value of a label.
func LabelValue(errs *resource.Errors, value string) {
	for _, msg := range utilvalidation.IsValidLabelValue(value) {
		errs.Invalid("", value, msg)
	}
}

// UserID accepts the number of a user, or none.
func UserID(errs *resource.Errors, at string, id *int64) {
	if id != nil {
		for _, msg := range utilvalidation.IsValidUserID(*id) {
			errs.Invalid(at, *id, msg)
		}
	}
}

// GroupID accepts the number of a group, or none.
func GroupID(errs *resource.Errors, at string, id *int64) {
	if id != nil {
		for _, msg := range utilvalidation.IsValidGroupID(*id) {
			errs.Invalid(at, *id, msg)
		}
	}
}
