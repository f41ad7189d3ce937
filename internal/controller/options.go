package controller

import "fmt"

// CheckRange says what is wrong with the value of a controller's flag that goes from
// low to high. 0 stands for the default, and is not wrong.
func CheckRange(flag string, value, low, high int) error {
	if value != 0 && (value < low || value > high) {
		return fmt.Errorf("--%s %d is not between %d and %d", flag, value, low, high)
	}
	return nil
}
