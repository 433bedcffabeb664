# frozen_string_literal: true

require_relative "web/sidekiq_tab"
