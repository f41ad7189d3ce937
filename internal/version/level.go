package version

import (
	"fmt"
	"strconv"
	"strings"

	utilversion "k8s.io/apimachinery/pkg/util/version"
	apimachinery "k8s.io/apimachinery/pkg/version"
)

// Level is the release whose API a program serves, where releases differ, and the oldest one that it goes along with: minor
// versions of Kubernetes 1. The zero value is that of this program.
type Level struct {
	emulated, compatible uint // 0: as is usual
}

// component is upstream's name of all of Kubernetes, as opposed to other servers that are made of its parts.
const component = "kube"

// back is how many releases before its own a program may serve.
const back = 3

// own is the release of this program.
func own() *utilversion.Version {
	v := utilversion.MustParseSemantic(Kubernetes)
	return utilversion.MajorMinor(v.Major(), v.Minor())
}

// ParseLevel is the level that --emulated-version and --min-compatibility-version say, each as VERSION or kube=VERSION.
func ParseLevel(emulated, compatible []string) (l Level, err error) {
	ours := own()
	floor := ours.SubtractMinor(back)
	acts, err := parseVersions(emulated)
	if err != nil {
		return Level{}, err
	}
	if acts == nil {
		acts = ours
	}
	with, err := parseVersions(compatible)
	if err != nil {
		return Level{}, err
	}
	if with == nil {
		if with = acts.SubtractMinor(1); with.LessThan(floor) {
			with = floor
		}
	}
	if acts.GreaterThan(ours) || acts.LessThan(floor) {
		return Level{}, fmt.Errorf("emulation version %s is not between [%s, %s]", acts, floor, ours)
	}
	if with.GreaterThan(acts) || with.LessThan(floor) {
		return Level{}, fmt.Errorf("minCompatibilityVersion version %s is not between [%s, %s]", with, floor, acts)
	}
	return Level{acts.Minor(), with.Minor()}, nil
}

// parseVersions is the version of Kubernetes in a list of those of components; nil: it is not said.
func parseVersions(list []string) (found *utilversion.Version, err error) {
	for _, text := range list {
		name, value, named := strings.Cut(text, "=")
		if !named {
			name, value = component, text
		}
		name = strings.TrimSpace(name)
		v, err := utilversion.Parse(strings.TrimSpace(value))
		switch {
		case err != nil:
			return nil, err
		case v.Patch() != 0:
			return nil, fmt.Errorf("patch version not allowed, got: %s=%s", name, v)
		case name != component:
			return nil, fmt.Errorf("component not registered: %s", name)
		case found != nil:
			return nil, fmt.Errorf("duplicate version flag, %s=%s and %s=%s", name, found, name, v)
		}
		found = utilversion.MajorMinor(v.Major(), v.Minor())
	}
	return found, nil
}

// Emulates is the minor version whose API is served.
func (l Level) Emulates() uint {
	if l.emulated == 0 {
		return own().Minor()
	}
	return l.emulated
}

// Compatible is the oldest minor version that is gone along with.
func (l Level) Compatible() uint {
	if l.compatible == 0 {
		return l.Emulates() - 1
	}
	return l.compatible
}

// Older says that another release than that of this program is served.
func (l Level) Older() bool { return l.Emulates() != own().Minor() }

// Text is a minor version as people write it: 1.37.
func Text(minor uint) string { return utilversion.MajorMinor(own().Major(), minor).String() }

// Info returns what GET /version answers at this level.
func (l Level) Info() apimachinery.Info {
	info := Info()
	info.EmulationMinor, info.MinCompatibilityMinor = strconv.FormatUint(uint64(l.Emulates()), 10), strconv.FormatUint(uint64(l.Compatible()), 10)
	return info
}
