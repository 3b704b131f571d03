"""Stories written by several authors whose lengths must fit together."""
