#include "comm/transport.h"

#include <stdlib.h>

typedef struct self_transport {
  mt_transport base;
  mt_transport_options options;
} self_transport;

static motet_status no_peer(motet_error *error, int32_t peer) {
  return mt_error_set(error, MOTET_ERROR_ARGUMENT, "rank %d does not exist: this rank is alone", (int)peer);
}

static motet_status self_send(mt_transport *transport, int32_t peer, int32_t tag, const void *data, size_t bytes,
                              motet_error *error, mt_transfer **transfer) {
  (void)transport, (void)tag, (void)data, (void)bytes, (void)transfer;
  return no_peer(error, peer);
}

static motet_status self_recv(mt_transport *transport, int32_t peer, int32_t tag, void *data, size_t bytes,
                              motet_error *error, mt_transfer **transfer) {
  (void)transport, (void)tag, (void)data, (void)bytes, (void)transfer;
  return no_peer(error, peer);
}

static motet_status self_wait(mt_transport *transport, mt_transfer *transfer, motet_error *error) {
  (void)transport, (void)transfer, (void)error;
  return MOTET_OK;
}

static void self_fail(mt_transport *transport, const motet_error *error) {
  self_transport *self = (self_transport *)transport;
  if (!transport->ended && self->options.report != NULL) self->options.report(self->options.context, error);
  transport->ended = true;
}

static void self_destroy(mt_transport *transport) { free(transport); }

static const mt_transport_table self_table = {
    .name = "self",
    .send = self_send,
    .recv = self_recv,
    .wait = self_wait,
    .fail = self_fail,
    .destroy = self_destroy,
};

motet_status mt_transport_self_create(const mt_transport_options *options, motet_error *error,
                                      mt_transport **transport) {
  if (options->ranks != 1)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "%d ranks were asked for, but this process runs alone",
                        (int)options->ranks);
  self_transport *self = calloc(1, sizeof *self);
  if (self == NULL) return mt_error_memory(error, sizeof *self, "the transport");
  *self = (self_transport){.base = {.table = &self_table, .rank = 0, .ranks = 1, .local_ranks = 1},
                           .options = *options};
  *transport = &self->base;
  return MOTET_OK;
}
