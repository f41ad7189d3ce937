// Package autoscaling declares the resources of the API group autoscaling:
// HorizontalPodAutoscalers, in today's version and in those before it. What an
// autoscaler does is the business of its controller.
package autoscaling
