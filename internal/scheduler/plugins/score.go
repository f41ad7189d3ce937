package plugins

import "slices"

// normalize stretches scores so that the highest is MaxScore; with reverse the
// highest becomes 0 and 0 becomes MaxScore.
func normalize(scores []int64, reverse bool) {
	highest := slices.Max(scores)
	for i, s := range scores {
		if highest != 0 {
			s = MaxScore * s / highest
		}
		if reverse {
			s = MaxScore - s
		}
		scores[i] = s
	}
}
