package client

import (
	"context"

	"github.com/droverhq/drover"
)

// ListDeliveries gives deliveries of outcomes that did not succeed at once, and
// are pending or dead, by run.
func (c *Client) ListDeliveries(ctx context.Context, req drover.DeliveryListRequest) (drover.DeliveryList, error) {
	var reply drover.DeliveryList
	return reply, c.request(ctx, "delivery.list", req, &reply)
}

// ShowDelivery shows how far a delivery is, in whatever status. The codes of its
// error: not_found, there is no such run or subscriber; conflict, the run is not
// over.
func (c *Client) ShowDelivery(ctx context.Context, id drover.DeliveryID) (drover.RunDelivery, error) {
	var reply drover.RunDelivery
	return reply, c.request(ctx, "delivery.show", drover.DeliveryRequest{DeliveryID: id}, &reply)
}

// ReplayDeliveries has a delivery that is pending or dead tried again at once, or
// all that a filter chooses. It returns when the runs know; how the attempts end
// ListDeliveries tells. A repeat is harmless: subscribers get the same bytes with
// the same id. The error has the code invalid_request where the request names no
// delivery and chooses none.
func (c *Client) ReplayDeliveries(ctx context.Context, req drover.ReplayRequest) (drover.ReplayReply, error) {
	var reply drover.ReplayReply
	return reply, c.request(ctx, "delivery.replay", req, &reply)
}
