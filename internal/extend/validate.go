package extend

import (
	"context"
	"math"
	"slices"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	schemacel "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apicel "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"

	"github.com/kemudi/kemudi/internal/custom"
	"github.com/kemudi/kemudi/internal/resource"
)

// validate holds an object against the schema, its lists and its rules, in upstream's order and words.
// What was wrong before and is left as it is stays (ratcheting).
func (s *schema) validate(ctx context.Context, obj, old *custom.Object, sub string, errs *resource.Errors) {
	r := s.rules()
	if r.err != nil {
		errs.Internal("", r.err)
		return
	}
	c := check{schema: s, rules: r, is: obj.Named()}
	c.right = sub != "status" && s.outline().fields["metadata"] == nil && r.plain.holds(c.is)
	if !c.right || r.cel != nil || s.outline().keyed { // the others, which are most, need no more of their metadata
		c.is = obj.Bare()
		if old != nil {
			c.was = old.Bare()
			if s.shape() != nil {
				c.related = common.NewCorrelatedObject(c.is, c.was, &model.Structural{Structural: s.shape()})
			}
		}
	}
	c.fields(ctx, sub)
	c.lists()
	c.expressions(ctx)
	errs.Add(c.found...)
}

// check is one look at an object.
type check struct {
	*schema
	*rules
	is, was map[string]any // was is nil for new ones
	right   bool           // the values of fields are
	related *common.CorrelatedObject
	found   field.ErrorList
}

// fields looks at the values of fields, one by one.
func (c *check) fields(ctx context.Context, sub string) {
	var ratchet []validation.ValidationOption
	switch {
	case sub == "status":
		if status, there := c.is["status"]; there && !c.plain.field("status").holds(status) {
			if c.related != nil {
				ratchet = append(ratchet, validation.WithRatcheting(c.related.Key("status")))
			}
			c.found = append(c.found, validation.ValidateCustomResourceUpdate(field.NewPath("status"), status, c.was["status"], c.status, ratchet...)...)
		}
		c.scaleStatus()
		return
	case c.right:
	case c.was != nil:
		if c.related != nil {
			ratchet = append(ratchet, validation.WithRatcheting(c.related))
		}
		c.found = append(c.found, validation.ValidateCustomResourceUpdate(nil, c.is, c.was, c.whole, ratchet...)...)
	default:
		c.found = append(c.found, validation.ValidateCustomResource(nil, c.is, c.whole)...)
	}
	c.scaleSpec()
	c.scaleStatus()
	if c.outline().embedded {
		c.found = append(c.found, objectmeta.Validate(ctx, nil, c.is, c.shape(), false)...)
	}
}

// lists looks at lists that are sets and maps.
func (c *check) lists() {
	if !c.outline().keyed {
		return
	}
	wrong := listtype.ValidateListSetsAndMaps(nil, c.shape(), c.is)
	if len(wrong) > 0 && (c.was == nil || len(listtype.ValidateListSetsAndMaps(nil, c.shape(), c.was)) == 0) {
		c.found = append(c.found, wrong...)
	}
}

// blocking are the kinds of errors of an object that rules cannot be asked about.
var blocking = []field.ErrorType{
	field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid,
}

// expressions asks the rules.
func (c *check) expressions(ctx context.Context) {
	if c.cel == nil {
		return
	}
	if slices.ContainsFunc(c.found, func(e *field.Error) bool { return slices.Contains(blocking, e.Type) }) {
		c.found = append(c.found, field.Invalid(nil, nil, "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation"))
		return
	}
	var ratchet []schemacel.Option
	var was any
	if c.was != nil {
		was = c.was
		ratchet = append(ratchet, schemacel.WithRatcheting(c.related))
	}
	began := time.Now()
	wrong, _ := c.cel.Validate(ctx, nil, c.shape(), c.is, was, apicel.RuntimeCELCostBudget, ratchet...)
	c.from.measure.Evaluated(time.Since(began))
	c.found = append(c.found, wrong...)
}

func (c *check) scale() *apiextensionsv1.CustomResourceSubresourceScale {
	if sub := c.version().Subresources; sub != nil {
		return sub.Scale
	}
	return nil
}

func (c *check) scaleSpec() {
	if scale := c.scale(); scale != nil {
		c.replicas(scale.SpecReplicasPath)
	}
}

func (c *check) scaleStatus() {
	scale := c.scale()
	if scale == nil {
		return
	}
	c.replicas(scale.StatusReplicasPath)
	if path := scale.LabelSelectorPath; path != nil {
		if selector, _, err := unstructured.NestedString(c.is, names(*path)...); err != nil {
			c.found = append(c.found, field.Invalid(field.NewPath(*path), selector, err.Error()))
		}
	}
}

// replicas looks at a number of replicas.
func (c *check) replicas(path string) {
	n, _, err := unstructured.NestedInt64(c.is, names(path)...)
	switch at := field.NewPath(path); {
	case err != nil:
		c.found = append(c.found, field.Invalid(at, n, err.Error()))
	case n < 0:
		c.found = append(c.found, field.Invalid(at, n, "should be a non-negative integer"))
	case n > math.MaxInt32:
		c.found = append(c.found, field.Invalid(at, n, "should be less than or equal to 2147483647"))
	}
}

// names are the fields on a path such as ".spec.replicas".
func names(path string) []string { return strings.Split(strings.TrimPrefix(path, "."), ".") }
