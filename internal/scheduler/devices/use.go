package devices

import (
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
)

// use is what allocations have of a device. There is one as long as the device is
// published, or allocated to somebody.
type use struct {
	published int // slices that have the device, outdated ones too
	whole     int // allocations of all of it
	shares    int // allocations of a part
	consumed  amounts

	// Of the search that goes on (D1).
	trying []int // claims, by index, that would get all of it, with admin access or without
	parts  int   // of it that would be given away
}

// amounts is so much of each capacity, by its name with the domain.
type amounts map[string]*apiresource.Quantity

// add adds to an amount; sign is +1 or -1.
func (a amounts) add(name string, q apiresource.Quantity, sign int) {
	have := a[name]
	if have == nil {
		have = &apiresource.Quantity{}
		a[name] = have
	}
	if sign > 0 {
		have.Add(q)
	} else {
		have.Sub(q)
	}
}

// qualified is the name of an attribute or a capacity with the domain, which is the
// driver's if it has none.
func qualified(driver, name string) string {
	if strings.Contains(name, "/") {
		return name
	}
	return driver + "/" + name
}

func (v *Inventory) useOf(id ID) *use {
	u := v.uses[id]
	if u == nil {
		u = &use{consumed: amounts{}}
		v.uses[id] = u
	}
	return u
}

// dropUse forgets what nobody publishes or has.
func (v *Inventory) dropUse(id ID, u *use) {
	if u.published == 0 && u.whole == 0 && u.shares == 0 {
		delete(v.uses, id)
	}
}

// account notes an allocation, or its end. Admin access takes nothing.
func (v *Inventory) account(a *resourcev1.AllocationResult, sign int) {
	for i := range a.Devices.Results {
		r := &a.Devices.Results[i]
		if r.AdminAccess != nil && *r.AdminAccess {
			continue
		}
		id := ID{r.Driver, r.Pool, r.Device}
		u := v.useOf(id)
		if r.ShareID == nil {
			u.whole += sign
		} else {
			u.shares += sign
			for name, q := range r.ConsumedCapacity {
				u.consumed.add(qualified(r.Driver, string(name)), q, sign)
			}
		}
		v.dropUse(id, u)
		if p := v.pools[poolID{r.Driver, r.Pool}]; p != nil {
			p.left = nil
		}
	}
}

// taken reports whether a device is somebody's, whole or in part.
func (u *use) taken() bool { return u.whole > 0 || u.shares > 0 }
