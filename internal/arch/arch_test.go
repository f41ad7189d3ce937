package arch

import (
	"testing"
)

// rules lists every rule over Go code by its name in exceptions.
var rules = []struct {
	name  string
	check func([]*source) []violation
}{
	{"layer", checkLayers},
	{"command", checkCommands},
	{"import", checkImports},
	{"light", checkLight},
	{"forbidden", checkForbidden},
	{"doc", checkDocs},
	{"file-lines", checkFileLines},
	{"package-lines", checkPackageLines},
	{"func-lines", checkFuncLines},
	{"struct-fields", checkStructFields},
	{"params", checkParams},
	{"go", checkGo},
	{"init", checkInit},
	{"background", checkBackground},
	{"sleep", checkSleep},
	{"seed", checkSeeds},
	{"errorf", checkErrorf},
	{"setter", checkSetters},
	{"names", checkNames},
	{"kind", checkKinds},
}

func TestHouseRulesHold(t *testing.T) {
	sources, err := tree()
	if err != nil {
		t.Fatal(err)
	}
	used := map[exception]bool{}
	for _, rule := range rules {
		t.Run(rule.name, func(t *testing.T) {
			for _, v := range rule.check(sources) {
				key := exception{v.rule, v.where}
				if exceptions[key] != "" {
					used[key] = true
					continue
				}
				t.Error(v)
			}
		})
	}
	for key, why := range exceptions {
		if !used[key] {
			t.Errorf("exceptions lists {%q, %q} (%s), but nothing there breaks the rule any more: remove it", key.rule, key.where, why)
		}
	}
}

func TestEveryUnitHasCode(t *testing.T) {
	sources, err := tree()
	if err != nil {
		t.Fatal(err)
	}
	units := ranks()
	for _, unit := range testOnly {
		units[unit] = 0
	}
	for _, unit := range unitsWithoutCode(units, sources) {
		t.Errorf("internal/arch/layers_test.go lists %s, where there is no code: remove it", unit)
	}
}
