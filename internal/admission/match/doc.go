// Package match says which writes are meant by the rules and selectors of webhooks and
// policies ([Criteria]), and shows a write to them at the version that they ask for
// ([Target]): objects with apiVersion and kind, as clients know them, and the request as
// expressions see it. What is changed there finds its way back into the write by
// [Target.Replace].
//
// What a webhook or a policy makes of a write is not known here.
package match
