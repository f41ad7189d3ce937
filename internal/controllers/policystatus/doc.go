// Package policystatus tells the authors of ValidatingAdmissionPolicies, in their status, where
// expressions look for fields that the kinds which a policy names do not have. A policy works
// without that: a field that is not there is an error of the expression when it is evaluated.
package policystatus
