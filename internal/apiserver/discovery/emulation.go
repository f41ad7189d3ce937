package discovery

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/version"
)

// Emulation leaves out what came after the release that a server acts as. The zero value leaves out nothing.
type Emulation struct {
	Level version.Level
	// Forward serves newer versions nevertheless, alpha versions excepted, of resources that the release has.
	Forward bool
	// Explicit serves them nevertheless where a switch names them.
	Explicit bool
}

// introduced is the minor version with which a resource came at a version; 0: before all that a server may act as.
func introduced(d *resource.Def, v *resource.VersionDef) uint {
	if d.Dynamic != nil {
		return 0
	}
	obj := d.New()
	if v != nil {
		obj = v.New()
	}
	if i, ok := obj.(interface{ APILifecycleIntroduced() (major, minor int) }); ok {
		_, minor := i.APILifecycleIntroduced()
		return uint(minor)
	}
	return 0
}

// at is the group and version of a resource's version, v as Enabled has it.
func at(d *resource.Def, v *resource.VersionDef) schema.GroupVersion {
	if v == nil {
		return d.GVK().GroupVersion()
	}
	return schema.GroupVersion{Group: v.Group, Version: v.Version}
}

// named says that switches turn on this very version, or this resource of it.
func named(on map[string]bool, d *resource.Def, v *resource.VersionDef) (whole, single bool) {
	gv := at(d, v).String()
	return on[gv], on[gv+"/"+d.Plural]
}

// Serves says that a version of a resource that is enabled is not left out.
func (e *Emulation) Serves(on map[string]bool, d *resource.Def, v *resource.VersionDef) bool {
	if !e.Level.Older() || introduced(d, v) <= e.Level.Emulates() {
		return true
	}
	if whole, single := named(on, d, v); e.Explicit && (whole || single) {
		return true
	}
	if !e.Forward || alpha.MatchString(at(d, v).Version) {
		return false
	}
	older := func(o *resource.VersionDef) bool {
		gv := at(d, o)
		return gv.Group == at(d, v).Group && !alpha.MatchString(gv.Version) && introduced(d, o) <= e.Level.Emulates() && Enabled(on, &d.Names, gv, o)
	}
	if v != nil && older(nil) {
		return true
	}
	for i := range d.Versions {
		if older(&d.Versions[i]) {
			return true
		}
	}
	return false
}

// Check refuses switches that turn on what came later.
func (e *Emulation) Check(on map[string]bool, defs []*resource.Def) error {
	if !e.Level.Older() {
		if e.Forward {
			return errors.New("--emulation-forward-compatible cannot be set to true if the emulation version is the same as the binary version")
		}
		if e.Explicit {
			return errors.New("--runtime-config-emulation-forward-compatible cannot be set to true if the emulation version is the same as the binary version")
		}
		return nil
	}
	served := map[schema.GroupVersion]bool{} // whether anything is left of a version that a switch names
	for _, d := range defs {
		for i := -1; i < len(d.Versions); i++ {
			var v *resource.VersionDef
			if i >= 0 {
				v = &d.Versions[i]
			}
			whole, single := named(on, d, v)
			if serves := e.Serves(on, d, v); single && !serves {
				gv := at(d, v)
				return fmt.Errorf("--runtime-config: cannot enable resource %s in runtime-config because it is introduced at %s after the current version %s. Consider setting --runtime-config-emulation-forward-compatible=true",
					gv.WithResource(d.Plural), version.Text(introduced(d, v)), version.Text(e.Level.Emulates()))
			} else if whole {
				served[at(d, v)] = served[at(d, v)] || serves
			}
		}
	}
	for gv, some := range served {
		if !some {
			return fmt.Errorf("--runtime-config: cannot enable version %s in runtime-config because all the resources have been introduced after the current version %s. Consider setting --runtime-config-emulation-forward-compatible=true",
				gv, version.Text(e.Level.Emulates()))
		}
	}
	return nil
}
