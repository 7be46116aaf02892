"""Operations on stored messages: browsing, bodies, journeys, traces, dead letters, sending again."""
