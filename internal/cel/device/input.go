package device

import (
	"fmt"
	"strings"

	"github.com/blang/semver/v4"
	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	resourcev1 "k8s.io/api/resource/v1"
	apicel "k8s.io/apiserver/pkg/cel"
	"k8s.io/utils/ptr"
)

// Input is a device as expressions see it. It is made once for a device and used for
// every expression, also from several goroutines.
type Input struct{ vars cel.Activation }

// NewInput makes the input of a device. It keeps parts of d, which must not change.
func NewInput(driver string, d *resourcev1.Device) (*Input, error) {
	attributes, capacity := domains{}, domains{}
	for name := range d.Attributes {
		a := d.Attributes[name]
		v, err := value(&a)
		if err != nil {
			return nil, fmt.Errorf("attribute %s: %w", name, err)
		}
		attributes.set(name, driver, v)
	}
	for name := range d.Capacity {
		q := d.Capacity[name].Value
		capacity.set(name, driver, apicel.Quantity{Quantity: &q})
	}
	vars, err := cel.NewActivation(map[string]any{"device": map[string]any{
		"driver":                   types.String(driver),
		"allowMultipleAllocations": types.Bool(ptr.Deref(d.AllowMultipleAllocations, false)),
		"attributes":               attributes.mapper(),
		"capacity":                 capacity.mapper(),
	}})
	if err != nil {
		return nil, err
	}
	return &Input{vars}, nil
}

// value is that of an attribute as expressions have it.
func value(a *resourcev1.DeviceAttribute) (ref.Val, error) {
	switch {
	case a.IntValues != nil:
		return types.DefaultTypeAdapter.NativeToValue(a.IntValues), nil
	case a.BoolValues != nil:
		return types.DefaultTypeAdapter.NativeToValue(a.BoolValues), nil
	case a.StringValues != nil:
		return types.NewStringList(types.DefaultTypeAdapter, a.StringValues), nil
	case a.VersionValues != nil:
		list := make([]ref.Val, len(a.VersionValues))
		for i, text := range a.VersionValues {
			v, err := version(text)
			if err != nil {
				return nil, err
			}
			list[i] = v
		}
		return types.NewRefValList(types.DefaultTypeAdapter, list), nil
	case a.IntValue != nil:
		return types.Int(*a.IntValue), nil
	case a.BoolValue != nil:
		return types.Bool(*a.BoolValue), nil
	case a.StringValue != nil:
		return types.String(*a.StringValue), nil
	case a.VersionValue != nil:
		return version(*a.VersionValue)
	}
	return nil, fmt.Errorf("unsupported attribute value")
}

func version(text string) (ref.Val, error) {
	v, err := semver.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("parse semantic version: %w", err)
	}
	return apicel.Semver{Version: v}, nil
}

// domains has values by the domain of their name, and then by the rest of it.
type domains map[string]map[string]any

// set files a value. A name without a domain is of the driver's.
func (d domains) set(name resourcev1.QualifiedName, driver string, v ref.Val) {
	domain, id, ok := strings.Cut(string(name), "/")
	if !ok {
		domain, id = driver, domain
	}
	if d[domain] == nil {
		d[domain] = map[string]any{}
	}
	d[domain][id] = v
}

// noValues is what a domain holds that a device has nothing of.
var noValues = types.NewStringInterfaceMap(types.DefaultTypeAdapter, map[string]any{})

func (d domains) mapper() traits.Mapper {
	all := make(map[string]any, len(d))
	for domain, values := range d {
		all[domain] = types.NewStringInterfaceMap(types.DefaultTypeAdapter, values)
	}
	return domainMap{types.NewStringInterfaceMap(types.DefaultTypeAdapter, all)}
}

// domainMap is a map whose keys are all there: an expression may ask for a value of
// any domain, and has an empty map for one that the device knows nothing of.
type domainMap struct{ traits.Mapper }

func (m domainMap) Find(key ref.Val) (ref.Val, bool) {
	if v, ok := m.Mapper.Find(key); ok {
		return v, true
	}
	return noValues, true
}
