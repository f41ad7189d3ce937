// Package devicetainteviction deletes pods that use devices with NoExecute taints which
// their claims do not tolerate, or tolerate only for a time, and tells in the status of a
// DeviceTaintRule how far that is, or what it would do.
//
// Taints come from the drivers' ResourceSlices and from DeviceTaintRules. That devices
// with taints are not given out is the scheduler's affair.
package devicetainteviction
