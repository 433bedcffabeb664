# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/rails_server"
require "shellwords"
require "tmpdir"

# In a Rails application under Puma: from "it grows" to the constant that holds what has grown, by the commands that
# each answer suggests.
class ObjectGrowthTest < MemscopeTest
  parallelize_me!

  # Each request leaves Listings in a cache that Catalog holds.
  APPLICATION = <<~RUBY
    Listing = Struct.new(:title, :tags)
    class Catalog
      @listings = {}
      class << self
        def listing(number) = @listings[number] ||= Listing.new("listing \#{number} " * 10, [number.to_s * 12])
      end
    end
    class ListingsController < ActionController::Base
      def index
        listings = (params[:from].to_i...params[:to].to_i).map { |number| Catalog.listing(number) }
        render(plain: listings.size.to_s)
      end
    end
    App.routes.append { get "/listings", to: "listings#index" }
  RUBY

  def setup
    skip_under_sanitizer
    super
  end

  both_allocators "two_commands_lead_to_the_constant", in_full: [:jemalloc] do |preload|
    Dir.mktmpdir do |directory|
      RailsServer.run(directory, APPLICATION, preload) do |server|
        assert_equal "1000", server.get("/listings?from=0&to=1000")
        before = File.join(directory, "before.json")
        memscope(server, "doctor", "--pid", server.pid.to_s, "--gc", "--json", "--output", before)

        assert_equal "119000", server.get("/listings?from=1000&to=120000")
        found = memscope(server, "doctor", "--pid", server.pid.to_s, "--gc", "--since", before)

        assert_match(/^ *\[?warning\]?.*Ruby objects hold \d+\.\d MiB more/i, found)
        command = found[/memscope heap --pid \d+/].shellsplit.drop(1)

        assert_match(/^ +\d+\.\d  Catalog @listings (?:→|->) Hash, holding 120,000 Listing$/,
                     memscope(server, *command))
      end
    end
  end

  private

  def memscope(server, *arguments)
    ran = server.memscope(*arguments)

    assert_includes [0, 1, 2], ran.status.exitstatus, ran
    ran.out
  end
end
