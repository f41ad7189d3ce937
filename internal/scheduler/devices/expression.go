package devices

import "errors"

var errNoCompiler = errors.New("expressions cannot be read here")

// expressionsKept is how many expressions are remembered with what they said about
// each device.
const expressionsKept = 256

// expressions are those that were asked about, until there are too many.
type expressions struct {
	epoch  uint64 // counts how often they were forgotten
	byText map[string]*expression
}

// expression is a selector that was compiled.
type expression struct {
	epoch   uint64
	slot    int // where devices keep what it says
	matches Matcher
	err     error // it cannot be compiled
}

// verdicts is what expressions say about a device, by slot.
type verdicts struct {
	epoch uint64
	said  []verdict
}

type verdict uint8

const (
	unknown verdict = iota
	yes
	no
)

func (x *expressions) forget() {
	x.epoch++
	x.byText = map[string]*expression{}
}

// expression compiles a selector, unless that was done before.
func (v *Inventory) expression(text string) *expression {
	x := &v.expressions
	if e := x.byText[text]; e != nil {
		return e
	}
	if len(x.byText) == expressionsKept {
		x.forget()
	}
	e := &expression{epoch: x.epoch, slot: len(x.byText)}
	if v.compile == nil {
		e.err = errNoCompiler
	} else {
		e.matches, e.err = v.compile(text)
	}
	x.byText[text] = e
	return e
}

// matches reports whether an expression means a device. An expression of before
// the last time that all were forgotten is asked each time.
func (v *Inventory) matches(e *expression, d *device) (bool, error) {
	if e.epoch == d.verdicts.epoch && e.slot < len(d.verdicts.said) {
		if said := d.verdicts.said[e.slot]; said != unknown {
			return said == yes, nil
		}
	}
	ok, err := e.matches(d.id.Driver, d.Device)
	if err != nil || e.epoch != v.expressions.epoch {
		return ok, err
	}
	if d.verdicts.epoch != e.epoch {
		d.verdicts = verdicts{epoch: e.epoch, said: d.verdicts.said[:0]}
	}
	for len(d.verdicts.said) <= e.slot {
		d.verdicts.said = append(d.verdicts.said, unknown)
	}
	d.verdicts.said[e.slot] = no
	if ok {
		d.verdicts.said[e.slot] = yes
	}
	return ok, nil
}
