package resource

import (
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/api/validation/path"
)

// NameRule returns what is wrong with a name; nothing if it is good. prefix
// says that name is a generateName, which may end in a dash.
type NameRule func(name string, prefix bool) []string

// The rules that names of objects follow.
var (
	DNS1123Subdomain NameRule = validation.NameIsDNSSubdomain
	DNS1123Label     NameRule = validation.NameIsDNSLabel
	DNS1035Label     NameRule = validation.NameIsDNS1035Label
	// PathSegment allows whatever fits into a URL path (RBAC names).
	PathSegment NameRule = path.ValidatePathSegmentName
)
