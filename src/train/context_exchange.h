/** @file The messages of context-parallel attention over a transport. */
#ifndef MT_TRAIN_CONTEXT_EXCHANGE_H
#define MT_TRAIN_CONTEXT_EXCHANGE_H

#include "comm/transport.h"
#include "nn/context.h"

/** The table for @p transport, which must outlive its use; members' ranks are the transport's. */
mt_context_exchange mt_context_exchange_over(mt_transport *transport);

#endif
